"""kube-scheduler's rules about nodes, for Pods that are given their node before it sees them.

Pure: from the JSON of Pods, Nodes, claims, volumes and classes to a word per node. What stays
kube-scheduler's alone (`unchecked`, and what `Volumes.judge` calls so) is named, never guessed.
"""

from cardwise.noderules.book import NodeBook
from cardwise.noderules.needs import Load, Needs, load_of, unchecked
from cardwise.noderules.volumes import ANYWHERE, Judged, Reach, Volumes

__all__ = [
    "ANYWHERE",
    "Judged",
    "Load",
    "Needs",
    "NodeBook",
    "Reach",
    "Volumes",
    "load_of",
    "unchecked",
]
