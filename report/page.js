/* SPDX-License-Identifier: Apache-2.0 */
/* page.js - what a page does beyond being read: the value under the pointer, and new values as they come. It asks nobody but
   the page's own server, and changes nothing there. */
(function () {
    'use strict';
    const page = document.getElementById('page');
    const names = ['loss', 'samples/s', 'gradient norm', 'learning rate'];

    /* ---- the value under the pointer ---- */

    let rows = null, rowsOf = null;
    function points() {
        const from = document.getElementById('points');
        if (from !== rowsOf) {
            rowsOf = from;
            rows = from ? from.dataset.points.split(';').filter(Boolean).map(function (line) { return line.split(','); }) : [];
        }
        return rows;
    }

    function nearest(step) {
        let best = null;
        for (const row of points())
            if (!best || Math.abs(row[0] - step) < Math.abs(best[0] - step))
                best = row;
        return best;
    }

    function show(event) {
        const plot = event.target.closest ? event.target.closest('figure') : null;
        if (!plot || plot.dataset.column === undefined) /* evaluations have a title on each point */
            return;
        const svg = plot.querySelector('svg.plot'), style = getComputedStyle(svg), box = svg.getBoundingClientRect();
        const left = box.left + parseFloat(style.paddingLeft);
        const width = box.width - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
        const share = Math.min(1, Math.max(0, (event.clientX - left) / width));
        const low = +plot.dataset.low, high = +plot.dataset.high, column = +plot.dataset.column;
        const row = nearest(low + share * (high - low));
        if (!row)
            return;
        const at = 100 * (row[0] - low) / (high - low) + '%', cursor = plot.querySelector('.cursor');
        cursor.setAttribute('x1', at);
        cursor.setAttribute('x2', at);
        cursor.style.visibility = 'visible';
        plot.querySelector('output').textContent = 'step ' + row[0] + ': ' + names[column] + ' ' + (row[2 + column] || 'not told') +
            (+row[1] ? ', ' + new Date(row[1] * 1000).toLocaleTimeString() : '');
    }
    document.addEventListener('pointermove', show);
    document.addEventListener('pointerdown', show);

    /* ---- new values ---- */

    const events = page.dataset.events;
    if (!events || !window.EventSource)
        return;
    let heard = 0, source = null;

    function say(text) {
        const live = document.getElementById('live');
        if (live && live.textContent !== text) {
            live.textContent = text;
            live.className = text === 'live' ? 'live good' : 'live bad';
        }
    }

    function take(event) {
        const parts = JSON.parse(event.data);
        heard = Date.now();
        for (const id in parts) {
            const element = document.getElementById(id);
            if (element)
                element.innerHTML = parts[id];
        }
        say('live');
    }

    function listen() {
        source = new EventSource(events);
        source.onmessage = take;
        source.addEventListener('gone', function (event) {
            source.close();
            source = null;
            say(JSON.parse(event.data));
        });
        source.onerror = function () {
            if (source && source.readyState === EventSource.CLOSED) { /* refused: too many look, or it does not lead */
                source = null;
                say('not live: asks again in 15 s');
                setTimeout(listen, 15000);
            }
        };
    }
    listen();
    setInterval(function () {
        if (source && heard && Date.now() - heard > 5000)
            say('not live: nothing heard for ' + Math.round((Date.now() - heard) / 1000) + ' s');
    }, 1000);
})();
