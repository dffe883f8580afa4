"""The edge towards clients: connections and their limits, who may come in, what errors say."""
