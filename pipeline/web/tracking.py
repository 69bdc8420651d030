"""Tracking parameters: what advertisers and mailers add to a link; sites do not choose the page by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TRACKING_PREFIX: Final = "utm_"
"""Google Analytics, "URL builders": utm_source, utm_medium and a growing family."""

TRACKING_PARAMETERS: Final[Mapping[str, str]] = {
    "gclid": "Google Ads, auto-tagging",
    "gclsrc": "Google Ads, auto-tagging",
    "gbraid": "Google Ads, auto-tagging of app campaigns",
    "wbraid": "Google Ads, auto-tagging of app campaigns",
    "gad_source": "Google Ads, auto-tagging",
    "gad_campaignid": "Google Ads, auto-tagging",
    "dclid": "Google Display & Video 360, click identifier",
    "srsltid": "Google Merchant Center, auto-tagging",
    "_gl": "Google Analytics, cross-domain linker",
    "fbclid": "Meta, click identifier",
    "igsh": "Instagram, share identifier",
    "igshid": "Instagram, share identifier",
    "msclkid": "Microsoft Advertising, auto-tagging",
    "twclid": "X Ads, click identifier",
    "ttclid": "TikTok Ads, click identifier",
    "li_fat_id": "LinkedIn Ads, first-party identifier",
    "epik": "Pinterest Ads, click identifier",
    "sccid": "Snapchat Ads, click identifier",
    "rdt_cid": "Reddit Ads, click identifier",
    "yclid": "Yandex Direct, click identifier",
    "ysclid": "Yandex Search, click identifier",
    "_openstat": "Openstat, campaign mark",
    "irclickid": "impact.com, click identifier",
    "mc_cid": "Mailchimp, campaign",
    "mc_eid": "Mailchimp, recipient",
    "mkt_tok": "Marketo, recipient",
    "vero_id": "Vero, recipient",
    "oly_enc_id": "Omeda Olytics, recipient",
    "oly_anon_id": "Omeda Olytics, visitor",
    "_hsenc": "HubSpot, e-mail tracking",
    "_hsmi": "HubSpot, e-mail tracking",
    "__hstc": "HubSpot, cross-domain linker",
    "__hssc": "HubSpot, cross-domain linker",
    "__hsfp": "HubSpot, cross-domain linker",
}
"""Parameter, in lower case, to whom adds it. Only names that their vendor documents as added on the way to the page.

Short or common names (`ref`, `source`, `cid`, `s_cid`) are not here: sites use them to choose the page.
"""


def is_tracking(name: str) -> bool:
    """Whether the name of a parameter, decoded, in any case, is that of a tracking parameter."""
    name = name.lower()
    return name in TRACKING_PARAMETERS or name.startswith(TRACKING_PREFIX)
