"""Chat templates that are made up, and turns to render with them."""

import datetime as dt

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.prompt.template import ChatTemplate

SYSTEM = Turn("system", "Be brief.")
ASKED = Turn("user", "Weather?")
NEXT = Turn("user", "And now?")
SAID = Turn("assistant", "It is warm.")
CALL = PastCall(id="tc-0", name="weather", arguments='{"city": "Zürich"}')
OTHER_CALL = PastCall(id="tc-1", name="weather", arguments='{"city": "Bern"}')
CALLING = Turn("assistant", "Let me look.", calls=(CALL,))
CALLING_TWICE = Turn("assistant", "", calls=(CALL, OTHER_CALL))
RESULT = Turn("tool", "12 °C", call_id="tc-0", name="weather")
WEATHER = ToolSpec(
    name="weather", description="Ask it.", input_schema='{"type":"object"}'
)

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
ABLE = """\
{% if tools %}tools: {{ tools | tojson }}
{% endif %}
{% for m in messages %}
{{ m.role }}: {{ m.content }}
{% for c in m.tool_calls or [] %}
call: {{ c.function.name }} {{ c.function.arguments | tojson }}
{% endfor %}
{% endfor %}
"""
ONE_CALL = ABLE.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]")
PARTS = "{% for m in messages %}{{ m.role }}: {{ m.content[0].text }}\n{% endfor %}"
NINE = (
    "{% for m in messages if m.tool_call_id and m.tool_call_id | length != 9 %}"
    "{{ raise_exception('No!') }}{% endfor %}"
) + ABLE
STRICT = """\
{% for m in messages %}
{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles must alternate!') }}
{% endif %}
{{ m.role }}: {{ m.content }}
{% endfor %}
"""
WORDLESS = (
    "{% for m in messages if m.content and m.tool_calls %}"
    "{{ raise_exception('Not both!') }}{% endfor %}"
) + ABLE


def compiled(source: str) -> ChatTemplate:
    """Compile a template for which it is always the same day."""
    return ChatTemplate(source, {}, lambda: dt.datetime(2024, 2, 29, tzinfo=dt.UTC))
