package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"berth/cmd/internal/cli"
)

// sight is what a watcher sees of the files it watches.
type sight struct {
	stamps map[string]string // by path as it is shown to people
	dirs   []string          // that hold the files: these are watched, so that a file that an editor replaces stays watched
}

// watcher tells when files change.
type watcher struct {
	scan func() (sight, error)
	say  func(format string, args ...any) // a line about the watching itself
	open func() (*fsnotify.Watcher, error)

	quiet   time.Duration // without a change before one is told of: editors save in several steps
	longest time.Duration // that changes without end are waited for
	poll    time.Duration // between two looks where the system does not tell
	safety  time.Duration // between two looks where it does; not every file system tells all
}

func newWatcher(scan func() (sight, error), say func(string, ...any)) *watcher {
	return &watcher{scan: scan, say: say, open: fsnotify.NewWatcher,
		quiet: 100 * time.Millisecond, longest: time.Second, poll: time.Second, safety: 10 * time.Second}
}

// run calls look at once and then with the paths that changed, until ctx ends
// or look fails.
func (w *watcher) run(ctx context.Context, look func(changed []string) error) (err error) {
	n := &notifier{watcher: w}
	defer func() { err = errors.Join(err, n.close()) }()
	if n.fs, err = w.open(); err != nil {
		n.giveUp(err)
	}
	var last map[string]string
	trouble := ""
	for first := true; ; first = false {
		now, err := n.see()
		if err == nil {
			trouble = ""
		}
		changed := difference(last, now.stamps)
		if err == nil {
			last = now.stamps
		}
		if first || err == nil && len(changed) > 0 {
			if err := look(changed); err != nil {
				return err
			}
		}
		if err != nil && err.Error() != trouble { // once, not every second
			trouble = err.Error()
			w.say("%v", err)
		}
		if !n.wait(ctx, trouble != "") {
			return nil
		}
	}
}

// notifier is a watcher's connection to the system; fs is nil while it polls.
type notifier struct {
	*watcher
	fs *fsnotify.Watcher
}

// giveUp goes on without notifications.
func (n *notifier) giveUp(why error) {
	hint := ""
	if strings.Contains(why.Error(), "no space left") || strings.Contains(why.Error(), "too many open files") {
		hint = " (the limits are fs.inotify.max_user_watches and max_user_instances)"
	}
	n.say("cannot be told of changes: %v%s; looking every %v instead", why, hint, n.poll)
	if err := n.close(); err != nil {
		n.say("%v", err)
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

// see scans, having made sure that what changes after the scan is told of: a
// directory may have been filled before it was watched.
func (n *notifier) see() (sight, error) {
	for tries := 10; ; tries-- {
		s, err := n.scan()
		if err != nil || n.fs == nil || tries == 0 {
			return s, err
		}
		grown, err := n.follow(s.dirs)
		if err != nil {
			n.giveUp(err)
			return s, nil
		}
		if !grown {
			return s, nil
		}
	}
}

// follow watches dirs and nothing else, and says whether one of them is new.
// What went is let go first: a directory that moved is still watched by its old
// name, and would not be by its new one.
func (n *notifier) follow(dirs []string) (grown bool, err error) {
	known, wanted := map[string]bool{}, map[string]bool{}
	for _, dir := range dirs {
		wanted[dir] = true
	}
	for _, dir := range n.fs.WatchList() {
		known[dir] = true
		if !wanted[dir] {
			_ = n.fs.Remove(dir) // it fails where the system has let it go already
		}
	}
	for _, dir := range dirs {
		if known[dir] {
			continue
		}
		grown = true
		if err := n.fs.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // it went meanwhile
			return grown, err
		}
	}
	return grown, nil
}

// wait returns when it is time to scan again; false when ctx has ended.
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
			if !errors.Is(err, fsnotify.ErrEventOverflow) { // too many changes are changes
				n.giveUp(err)
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

// difference lists the paths that are not the same in a and b, sorted.
func difference(a, b map[string]string) []string {
	var out []string
	for _, path := range slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b))) {
		if a[path] != b[path] {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// seeEstate sees the documents of the estate in root, and what tenants have in
// directories of their own.
func seeEstate(root string, tenants ...string) (sight, error) {
	s := sight{stamps: map[string]string{}}
	err := s.tree(root, "", ofEstate)
	for _, dir := range tenants {
		err = errors.Join(err, s.tree(dir, dir+"/", func(string) bool { return true }))
	}
	return s, err
}

// tree adds the files below root, shown behind prefix; of root's own entries
// only the directories that are wanted.
func (s *sight) tree(root, prefix string, wanted func(top string) bool) error {
	root = filepath.Clean(root)
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name != root {
			return nil // it went while we looked; the next look tells
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		path := filepath.ToSlash(rel)
		top := path != "." && !strings.Contains(path, "/")
		switch {
		case entry.IsDir() && (entry.Name() == ".git" && path != "." || top && !wanted(path)):
			return fs.SkipDir
		case entry.IsDir():
			s.dirs = append(s.dirs, name)
			return nil
		case top && !wanted(path):
			return nil
		}
		return s.file(name, prefix+path)
	})
}

// file adds one file, which may not be there.
func (s *sight) file(name, shown string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.stamps[shown] = fmt.Sprintf("%v %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano())
	return nil
}

// sayer writes lines that begin with the time of day.
func sayer(w io.Writer) func(string, ...any) {
	return func(format string, args ...any) {
		fmt.Fprintf(w, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
	}
}

// changes is what changed, in a few words.
func changes(paths []string) string {
	const most = 3
	if n := len(paths); n > most {
		return fmt.Sprintf("%s and %d more changed", strings.Join(paths[:most], ", "), n-most)
	}
	return strings.Join(paths, ", ") + " changed"
}

// rounds is how a command is repeated on every change.
type rounds struct {
	what string // is watched
	scan func() (sight, error)
	once func() error // an *cli.ExitError without a cause has been printed already
	text bool         // what once prints is text for people, between which lines may stand
}

// watch runs once, and again whenever something changes, until ctx ends. What
// is wrong with the call ends it at once; what goes wrong later is told, and may
// be mended by the next change.
func watch(ctx context.Context, out, problems io.Writer, r rounds) error {
	if !r.text {
		out = problems
	}
	say := sayer(out)
	first := true
	return newWatcher(r.scan, say).run(ctx, func(changed []string) error {
		if first {
			say("watching %s; interrupt to end", r.what)
		} else {
			say("%s", changes(changed))
		}
		err := r.once()
		var exit *cli.ExitError
		switch {
		case ctx.Err() != nil, err == nil:
		case errors.As(err, &exit) && exit.Err == nil:
		case first && errors.As(err, &exit) && exit.Code == 2:
			return err
		default:
			say("%v", err)
		}
		first = false
		return nil
	})
}

// ofEstate says whether a path is in one of the estate's directories, or in one
// that looks like it.
func ofEstate(path string) bool {
	top, _, _ := strings.Cut(path, "/")
	return strings.EqualFold(top, "platform") || strings.EqualFold(top, "tenants")
}
