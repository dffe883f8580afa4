"""Our own renderer of plates: flat plates, photographed crops and whole scenes."""
