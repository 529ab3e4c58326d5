"""Each container starts with the cards that its Pod's allocation says, and with no others."""

from typing import Final

from node.pods import container
from node.stage import Ward

SEE: Final = "env; echo seen; "
ONE: Final = (0, 1000, 0)


def test_a_container_sees_its_card_and_limits(ward: Ward) -> None:
    text = ward.text([(2, 1000, 30)])

    ward.book("one", text, [container("main", SEE, gpus=1)])

    seen = ward.saw("one", "main")
    assert seen["NVIDIA_VISIBLE_DEVICES"] == ward.card(2)
    assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    assert seen["CUDA_DEVICE_SM_LIMIT"] == "30"
    assert ward.node.ended("one")["status"]["phase"] == "Succeeded"
