// Package watch calls a function whenever files change. It knows the directories of
// an estate, but nothing of what its documents say.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watcher reports changes of files.
type Watcher struct {
	scan func() (Files, error)
	log  func(string)
	open func() (*fsnotify.Watcher, error)

	quiet   time.Duration // without a change before one is reported: editors save in several steps
	longest time.Duration // that a report waits for quiet
	poll    time.Duration // between two scans without notifications of the system
	safety  time.Duration // between two scans with them; not every file system notifies of all changes
}

// New returns a watcher of the files that scan returns. log takes a line about the
// watching itself.
func New(scan func() (Files, error), log func(string)) *Watcher {
	return &Watcher{scan: scan, log: log, open: fsnotify.NewWatcher,
		quiet: 100 * time.Millisecond, longest: time.Second, poll: time.Second, safety: 10 * time.Second}
}

// Run calls report once, and again with the paths that changed, until ctx ends or
// report fails.
func (w *Watcher) Run(ctx context.Context, report func(changed []string) error) (err error) {
	n := &notifier{Watcher: w}
	defer func() { err = errors.Join(err, n.close()) }()
	if n.fs, err = w.open(); err != nil {
		n.fallBack(err)
	}
	var last map[string]string
	trouble := ""
	for first := true; ; first = false {
		now, err := n.scanFollowed()
		changed := difference(last, now.Stamps)
		if err == nil {
			last, trouble = now.Stamps, ""
		}
		if first || err == nil && len(changed) > 0 {
			if err := report(changed); err != nil {
				return err
			}
		}
		if err != nil && err.Error() != trouble { // once, not at every scan
			trouble = err.Error()
			w.log(trouble)
		}
		if !n.wait(ctx, trouble != "") {
			return nil
		}
	}
}

// notifier is a watcher with its connection to the system; fs is nil while it polls.
type notifier struct {
	*Watcher
	fs *fsnotify.Watcher
}

// fallBack continues without notifications.
func (n *notifier) fallBack(why error) {
	hint := ""
	if strings.Contains(why.Error(), "no space left") || strings.Contains(why.Error(), "too many open files") {
		hint = " (the limits are fs.inotify.max_user_watches and max_user_instances)"
	}
	n.log(fmt.Sprintf("no notifications of changes: %v%s; scanning every %v instead", why, hint, n.poll))
	if err := n.close(); err != nil {
		n.log(err.Error())
	}
}

func (n *notifier) close() error {
	if n.fs == nil {
		return nil
	}
	fs := n.fs
	n.fs = nil
	return fs.Close()
}

// scanFollowed scans once all directories are watched: one may have been filled
// before it was watched.
func (n *notifier) scanFollowed() (Files, error) {
	for tries := 10; ; tries-- {
		f, err := n.scan()
		if err != nil || n.fs == nil || tries == 0 {
			return f, err
		}
		grown, err := n.follow(f.Dirs)
		if err != nil {
			n.fallBack(err)
			return f, nil
		}
		if !grown {
			return f, nil
		}
	}
}

// follow watches exactly dirs, and reports whether one of them is new. It removes
// the old ones first: a directory that moved is still watched by its old name, and
// would not be by its new one.
func (n *notifier) follow(dirs []string) (grown bool, err error) {
	known, wanted := map[string]bool{}, map[string]bool{}
	for _, dir := range dirs {
		wanted[dir] = true
	}
	for _, dir := range n.fs.WatchList() {
		known[dir] = true
		if !wanted[dir] {
			_ = n.fs.Remove(dir) // it fails if the system has removed it already
		}
	}
	for _, dir := range dirs {
		if known[dir] {
			continue
		}
		grown = true
		if err := n.fs.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // removed since the scan
			return grown, err
		}
	}
	return grown, nil
}

// wait returns true when it is time to scan again, and false when ctx has ended.
func (n *notifier) wait(ctx context.Context, trouble bool) bool {
	every := n.safety
	if n.fs == nil || trouble {
		every = n.poll
	}
	var events <-chan fsnotify.Event
	var failures <-chan error
	if n.fs != nil {
		events, failures = n.fs.Events, n.fs.Errors
	}
	timer, end := time.NewTimer(every), time.Time{}
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case err := <-failures:
			if !errors.Is(err, fsnotify.ErrEventOverflow) { // an overflow means changes
				n.fallBack(err)
				return true
			}
		case <-events:
		}
		if end.IsZero() {
			end = time.Now().Add(n.longest)
		}
		timer.Reset(min(n.quiet, time.Until(end)))
	}
}
