"""How fast the pipeline is, measured in one process and always against something else.

    turns       takes times of several things in turns
    stages      splits the time of a photo among the pipeline's stages
    published   the published pipeline's shape beside ours
    arithmetic  what the nets compute, and what this machine's matrix multiply gives
    scaling     whether cost grows like a straight line
    creep       stages against a yardstick, kept from release to release

`plates bench` shows all of it.
"""
