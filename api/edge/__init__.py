"""The edge towards senders: connections and their limits, who may come in, what errors say."""
