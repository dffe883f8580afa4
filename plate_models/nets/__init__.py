"""YOLOv5, STN and LPRNet: architecture only."""
