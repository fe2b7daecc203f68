/* Makes asv's pages usable by keyboard and screen reader: its buttons are links without an
   address, its tree opens on clicks at labels, and its tables sort on clicks at headers. */
'use strict';

(function () {
    var BUTTONS = 'a[role=button]:not([href]), a.btn:not([href]), label.nav-header, ' +
        'th[data-sort], .dropdown-menu a:not([href])';

    function set(element, name, value) {
        if (element.getAttribute(name) !== value) {
            element.setAttribute(name, value);
        }
    }

    function improve() {
        document.querySelectorAll(BUTTONS).forEach(function (element) {
            set(element, 'tabindex', '0');
            if (element.matches('a')) {
                set(element, 'role', 'button');
                set(element, 'aria-pressed', element.classList.contains('active') ? 'true' : 'false');
            } else if (element.matches('label')) {
                var tree = element.parentNode.querySelector('ul.tree');
                set(element, 'role', 'button');
                set(element, 'aria-expanded',
                    tree && getComputedStyle(tree).display !== 'none' ? 'true' : 'false');
            } else {
                set(element, 'scope', 'col');
                set(element, 'aria-sort', element.classList.contains('asc') ? 'ascending' :
                    element.classList.contains('desc') ? 'descending' : 'none');
            }
        });
        document.querySelectorAll('a[href].benchmark-container').forEach(function (element) {
            set(element, 'aria-label', element.textContent.trim() + ', over the commits');
        });
        document.querySelectorAll('.asv-navigation input[type=text]').forEach(function (element) {
            if (!element.hasAttribute('aria-label')) {
                set(element, 'aria-label', 'Range');
            }
        });
        document.querySelectorAll('#nav li').forEach(function (item) {
            var link = item.querySelector('a[href]');
            if (link) {
                if (item.classList.contains('active')) {
                    set(link, 'aria-current', 'page');
                } else {
                    link.removeAttribute('aria-current');
                }
            }
        });
    }

    /* asv rebuilds parts as it goes: look again after each change, once a frame. */
    var waiting = false;
    function later() {
        if (!waiting) {
            waiting = true;
            requestAnimationFrame(function () {
                waiting = false;
                improve();
            });
        }
    }

    document.addEventListener('keydown', function (event) {
        if ((event.key === 'Enter' || event.key === ' ') && event.target.matches(BUTTONS)) {
            event.preventDefault();
            event.target.click();
        }
    });

    document.addEventListener('DOMContentLoaded', function () {
        /* asv reads the fragment as the name of one of its pages. */
        document.querySelector('.skip').addEventListener('click', function (event) {
            event.preventDefault();
            document.getElementById('main').focus();
        });
        new MutationObserver(later).observe(document.body, {
            attributes: true, attributeFilter: ['class', 'style'], childList: true, subtree: true
        });
        improve();
    });
})();
