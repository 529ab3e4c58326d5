"""The errors that Cardwise raises, each for one reader.

::

    CardwiseError
    ├── BadQuantity       a value in a Pod, a quota or a GPUNode that is no whole number
    ├── BadWeights        a scoring-weights annotation that does not parse
    ├── BadAllocation     an allocation annotation that can't be read
    ├── BadGPUNode        a GPUNode that the schema would refuse
    ├── BadSettings       the settings file: the message names the key
    ├── BadBody           the body of a call that is not what its caller should send
    ├── BadDocument       a file given to the command line: the message names file and line
    ├── ApiError          the API server refused, or its answer is not known
    └── NvmlUnavailable   the driver's library is absent or does not answer

An expected "no" (a card is full, a quota is used up) is a value, never one of these.
"""


class CardwiseError(Exception):
    """The root: its text is one sentence that a person can act on."""


class BadQuantity(CardwiseError):
    """A resource value that is not a whole, positive, decimal number."""


class BadWeights(CardwiseError):
    """A value of ``hami.io/device-scoring-weights`` that does not parse."""


class BadAllocation(CardwiseError):
    """An allocation annotation that can't be read."""


class BadGPUNode(CardwiseError):
    """A GPUNode whose cards or links contradict themselves."""


class BadSettings(CardwiseError):
    """A settings file with an unknown key or a wrong type."""


class BadBody(CardwiseError):
    """The body of a call that is not what kube-scheduler or the API server sends."""


class BadDocument(CardwiseError):
    """A file that is not the YAML or JSON of Kubernetes objects."""


class NvmlUnavailable(CardwiseError):
    """NVML can't be loaded or does not answer."""


class ApiError(CardwiseError):
    """The API server refused a request, or nobody knows what became of it."""

    def __init__(self, status: int | None, message: str) -> None:
        """Keep the HTTP status; None: no answer, so that the request may have had its effect."""
        super().__init__(message)
        self.status = status
