"""The style sheet of a report's page: light and dark, narrow and wide."""

STYLE = """
:root{color-scheme:light dark;--paper:#f5f6f8;--card:#fff;--ink:#1a1f26;--soft:#57606a;--grid:#dfe3e8;--axis:#9aa3ad;
--shade:#dfe9f7;--bad:#a40e26;--bad-paper:#fff0f0;--odd:#7a4b00;--odd-paper:#fff7e3;
--s0:#2463b4;--s1:#c2510a;--s2:#157a52;--s3:#8438ad;--s4:#b3266b;--s5:#66700a;--s6:#00778a;--s7:#7b5331}
@media (prefers-color-scheme:dark){:root{--paper:#0e1318;--card:#171d24;--ink:#e7edf3;--soft:#a0adb9;--grid:#2b353f;
--shade:#253a54;--axis:#65727e;--bad:#ff9b9b;--bad-paper:#35191c;--odd:#f2c572;--odd-paper:#2f2613;
--s0:#6fb1ff;--s1:#ff9f5c;--s2:#55cf98;--s3:#c89cff;--s4:#ff8fc3;--s5:#c8d35c;--s6:#4fcfdf;--s7:#d8ab83}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;-webkit-text-size-adjust:100%}
header,main,footer{max-width:68rem;margin:0 auto;padding:0 1rem}
header{padding-top:1.5rem}footer{padding-bottom:3rem}
h1{font-size:1.75rem;line-height:1.2;margin:.25rem 0 1.25rem;overflow-wrap:anywhere;letter-spacing:-.01em}
h2{font-size:1.15rem;margin:0 0 .15rem;overflow-wrap:anywhere}
p{margin:0 0 .75rem}p:last-child{margin:0}.soft,figcaption{color:var(--soft)}.soft{max-width:44rem}
.kicker{color:var(--soft);font-size:.9rem;margin:0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.75rem;margin:0 0 1rem}
.tiles div,section{background:var(--card);border:1px solid var(--grid);border-radius:10px}
.tiles div{padding:.7rem .9rem}
.tiles dt{color:var(--soft);font-size:.85rem}
.tiles dd{margin:0;font-size:1.35rem;font-weight:600;line-height:1.25;font-variant-numeric:tabular-nums}
.tiles dd small{display:block;font-size:.8rem;font-weight:400;color:var(--soft)}
section{padding:1.1rem 1.1rem 1.2rem;margin:0 0 1rem}
.pair{display:grid;grid-template-columns:minmax(0,1fr);gap:1rem}
@media (min-width:52rem){.pair{grid-template-columns:minmax(0,1fr) 17rem;gap:2rem}section{padding:1.4rem 1.6rem}
header{padding-top:2.5rem}}
figure{margin:0;min-width:0}figcaption{font-size:.85rem;margin:.1rem 0 0}
svg{display:block;overflow:visible}
.axis{stroke:var(--axis)}.grid{stroke:var(--grid)}
.tick{font-size:12px;fill:var(--soft);paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round;
font-variant-numeric:tabular-nums}
.l{fill:none;stroke-width:2.25;stroke-linejoin:round}
.f.s0{fill:var(--s0)}.f.s1{fill:var(--s1)}.f.s2{fill:var(--s2)}.f.s3{fill:var(--s3)}
.f.s4{fill:var(--s4)}.f.s5{fill:var(--s5)}.f.s6{fill:var(--s6)}.f.s7{fill:var(--s7)}
.l.s0{stroke:var(--s0)}.l.s1{stroke:var(--s1);stroke-dasharray:7 3}.l.s2{stroke:var(--s2);stroke-dasharray:2 3}
.key{list-style:none;display:flex;flex-wrap:wrap;gap:.15rem 1.1rem;margin:.4rem 0 .3rem;padding:0;font-size:.88rem}
.key svg,.swatch{display:inline-block;vertical-align:-1px;margin-right:.4rem}
.bars{list-style:none;margin:0;padding:0}.bars li{margin:.35rem 0;font-size:.9rem}
.facts{display:grid;grid-template-columns:auto auto;gap:.28rem .75rem;margin:0;font-size:.92rem;align-content:start}
.wide{grid-template-columns:minmax(6rem,max-content) 1fr}.wide dd{text-align:left!important}
@media (max-width:34rem){.wide{grid-template-columns:1fr;gap:0}.facts.wide dd{margin:0 0 .45rem}}
.facts dt{color:var(--soft)}.facts dd{margin:0;text-align:right;font-variant-numeric:tabular-nums;
overflow-wrap:anywhere}
.scroll{overflow-x:auto;margin-top:.9rem}
.scroll:focus-visible{outline:2px solid var(--s0);outline-offset:3px}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);font-size:.85rem;padding-bottom:.25rem}
th,td{text-align:right;padding:.32rem .55rem;border-bottom:1px solid var(--grid);vertical-align:top}
td{white-space:nowrap}th{font-weight:600}thead th{color:var(--soft);font-weight:500;vertical-align:bottom}
th:first-child,td:first-child{text-align:left;padding-left:0}th:last-child,td:last-child{padding-right:0}
.name{overflow-wrap:anywhere;display:inline-block;min-width:6rem;max-width:24rem}
h3{font-size:.95rem;margin:.2rem 0 .3rem}
.said{font:.85rem/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre-wrap;
overflow-wrap:anywhere;margin:.15rem 0 .2rem}
.tokens span{box-shadow:inset 1px 0 var(--axis)}.tokens span:nth-child(odd){background-color:var(--shade)}
.tokens span.soft{background:none;box-shadow:none}
.token{font:.85rem ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;background:var(--shade);
color:var(--ink);border-radius:3px;padding:0 .25em;white-space:pre-wrap}
.narrow{grid-template-columns:minmax(0,max-content) minmax(0,max-content);column-gap:2rem}
.pictures{list-style:none;display:grid;grid-template-columns:repeat(auto-fill,minmax(8.5rem,1fr));gap:1rem;padding:0;
margin:.6rem 0 1.2rem}.pictures img{display:block;max-width:100%;height:auto;border-radius:5px}
.pictures figcaption{overflow-wrap:anywhere}
.samples{list-style:none;margin:.6rem 0 0;padding:0}.samples>li{border-top:1px solid var(--grid);padding:.6rem 0}
.samples dl{margin-top:.3rem}
.found{list-style:none;margin:.6rem 0 0;padding:0}
.found li{background:var(--odd-paper);color:var(--odd);border-radius:7px;padding:.5rem .75rem;margin:.45rem 0;
overflow-wrap:anywhere;font-size:.92rem}
.found .error{background:var(--bad-paper);color:var(--bad)}
footer{color:var(--soft);font-size:.85rem}
@media print{body{background:#fff}section,.tiles div{break-inside:avoid}}
"""
