"""The page of a tool that copies values: what they may be, which runs say so, and what a person
decides about it.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
from playwright.sync_api import Browser, Page, expect

from ideabridge.bridge import Bridge, Configuration
from ideabridge.tools import Toolbox
from tests.lifting.runs import Turn, solved, turn
from tests.ui import shop
from tests.ui.serving import link_to, served

TURNS: list[Turn] = [
    lambda _: turn({"_tool": "list_orders", "customer": "†input.customer"}),
    # Order 1 of customer c1 has the total 10, and the mind copies both.
    lambda s: turn(
        {"_tool": "refund", "order": s.result(0, 0, "id"), "amount": s.result(0, 0, "total")}
    ),
    lambda _: turn(output="†results.1"),
]


async def _publish(path: Path) -> None:
    """Publish a run that copied values, with another run as evidence."""
    async with Bridge(
        Configuration(), toolbox=Toolbox(shop.list_orders, shop.refund), store=path
    ) as bridge:
        run = await solved(
            bridge, "Refund the first order", {"customer": "c1"}, TURNS, {"type": "string"}
        )
        other = await solved(
            bridge, "Refund the first order", {"customer": "c2"}, TURNS, {"type": "string"}
        )
        await bridge.publish(run.id, "refund_first", choices={"runs": [other.id]})


def test_what_a_copied_value_may_be_is_seen_and_decided(page: Page, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(anyio.run, _publish, tmp_path / "ideas.sqlite").result()
    with served(tmp_path) as site:
        page.goto(link_to(site))
        page.goto(f"{site}ideas/refund_first")
        copied = page.get_by_role("group", name="Copied values")
        expect(copied).to_contain_text("total of item 0 of the result of List orders")
        page.get_by_text("Evidence: 1 more run").click()
        evidence = page.get_by_role("group", name="Evidence", exact=True)
        expect(evidence.locator("tbody tr")).to_have_count(1)
        expect(evidence).to_contain_text("named at publication")
        expect(evidence).to_contain_text("calls.1.amount 20.0")
        page.get_by_role("link", name="Accept, fix or rename them").click()
        page.locator("select[name='t.calls.1.amount']").select_option("keep")
        page.get_by_role("button", name="Save as the next version").click()
        expect(page.locator(".facts", has_text="version 2")).to_be_visible()
        expect(copied).not_to_contain_text("amount for Refund")
        expect(page.get_by_label("What a call runs")).to_contain_text('"amount": 10.0')

        # The constant is the same. What has changed is that nothing else may take its place.
        second = page.get_by_role("row").filter(has=page.get_by_role("link", name="2", exact=True))
        second.get_by_role("link", name=re.compile("difference")).click()
        expect(page.get_by_label("Differences")).to_contain_text("- plan.explained.calls.1.amount")
        page.go_back()

        # The decision is shown and can be taken back.
        page.get_by_role("link", name="Accept, fix or rename them").click()
        page.get_by_label(
            "amount for Refund: always the recorded value, as decided before"
        ).uncheck()
        page.get_by_role("button", name="Save as the next version").click()
        expect(page.locator(".facts", has_text="version 3")).to_be_visible()
        expect(copied).to_contain_text("amount for Refund")


WRONG = """
import tools
orders = await tools.list_orders(customer=input["customer"])
await tools.refund(order=orders[0]["id"], amount=11.0)
"""
RIGHT = WRONG.replace("11.0", 'orders[0]["total"]')


async def _run(path: Path) -> str:
    """Make a run that copied values, and return its id."""
    async with Bridge(
        Configuration(), toolbox=Toolbox(shop.list_orders, shop.refund), store=path
    ) as bridge:
        run = await solved(
            bridge, "Refund the first order", {"customer": "c1"}, TURNS, {"type": "string"}
        )
        return run.id


def test_a_program_is_handed_in_without_a_script_and_a_refused_one_stays(
    browser: Browser, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(anyio.run, _run, tmp_path / "ideas.sqlite").result()
    with served(tmp_path) as site:
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(link_to(site))
        page.goto(f"{site}ideas/publish?ref={run}&name=refund_first")
        parameters = page.get_by_role("group", name="What the tool asks for")
        expect(parameters).to_contain_text("In the run: c1.")
        page.get_by_text("Advanced").click()
        page.get_by_role("textbox", name="Program").fill(WRONG)
        page.get_by_role("button", name="Make the tool").click()
        expect(page.get_by_text("Refused:")).to_contain_text("11.0")
        expect(page.get_by_role("textbox", name="Program")).to_have_value(re.compile("amount=11.0"))

        page.get_by_role("textbox", name="Program").fill(RIGHT)
        page.get_by_role("button", name="Make the tool").click()
        expect(page.locator(".facts", has_text="version 1")).to_be_visible()
        expect(page.get_by_label("The program that a call runs")).to_contain_text(
            'orders[0]["total"]'
        )
        expect(page.locator("#call-form")).to_contain_text("customer text · required")
        context.close()
