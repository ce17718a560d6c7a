from speccompile.runtime.control.chains import ChainController
from speccompile.runtime.control.controller import FixedController
from speccompile.runtime.drafting.draft import Effort


class Bushy(FixedController):
    def effort(self, room: int) -> Effort | None:
        return Effort(3, 9, branches={0: 3}, beside=(4,), certain=True) if room else None


def test_what_is_left_of_a_tree_is_a_chain_of_its_depth() -> None:
    controller = ChainController(Bushy(3))
    assert controller.effort(5) == Effort(3, 3, certain=True)
    assert controller.effort(0) is None
