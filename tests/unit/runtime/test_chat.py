"""Chat templates come with a model and are not trusted."""

from __future__ import annotations

import pytest

from speccompile.runtime.chat import ChatTemplate, Message
from speccompile.runtime.errors import RequestError

HELLO: list[Message] = [{"role": "user", "content": "hello"}]


def _template(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>")


def test_messages_are_rendered_with_the_models_own_tokens() -> None:
    template = _template(
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m['content'] }}{{ eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    assert template.render(HELLO) == "<s>[user] hello</s>[assistant]"


def test_block_tags_leave_no_blank_lines() -> None:
    template = _template(
        "{% for m in messages %}\n  {% if true %}\n{{ m.content }}{% endif %}{% endfor %}"
    )
    assert template.render(HELLO) == "hello"


def test_a_template_may_refuse_a_conversation() -> None:
    template = _template("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(RequestError, match="refuses this conversation: roles must alternate"):
        template.render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
    ],
)
def test_a_template_cannot_leave_the_sandbox(source: str) -> None:
    with pytest.raises(RequestError):
        _template(source).render(HELLO)


def test_a_broken_template_is_one_line() -> None:
    with pytest.raises(RequestError, match="use --raw") as error:
        _template("{% for %}")
    assert "\n" not in str(error.value)
