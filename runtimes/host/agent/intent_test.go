package agent_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"berth/examples/need"
	"berth/runtimes"
)

// everyEffect has an operation of each kind with an effect.
func (f *far) everyEffect() map[string]runtimes.Op {
	return map[string]runtimes.Op{
		"write":       write(f.path("open", "new"), "x"),
		"overwrite":   write(f.path("open", "old"), "x"),
		"remove":      {Remove: &runtimes.Remove{Path: f.path("open", "old")}},
		"remove tree": {Remove: &runtimes.Remove{Path: f.path("open", "tree"), Tree: true}},
		"directory":   {Dir: &runtimes.MakeDir{Path: f.path("open", "dir"), Mode: 0o755}},
		"link":        {Link: &runtimes.MakeLink{Path: f.path("open", "link"), Target: "old"}},
		"secret":      {Secret: &runtimes.MakeSecret{Path: f.path("open", "secret"), Bytes: 16, Mode: 0o400}},
		"service":     {Service: &runtimes.Service{Name: "plain", Unit: "u", Verb: "start"}},
		"run":         {Run: &runtimes.Run{Program: "sh", Args: []string{"-c", "touch " + f.path("open", "ran")}}},
		"user":        user("marie", 7742001, false),
		"user's dir":  userDir(f.path("open", "jobs", "mill"), "paul", 7742002),
	}
}

// tree lists the paths that an effect could change, with modes and contents.
func (f *far) tree() []string {
	f.Helper()
	var out []string
	for _, root := range []string{f.dir, f.etc} {
		require.NoError(f, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			st, err := os.Lstat(path)
			if err != nil {
				return err
			}
			line := fmt.Sprint(path, " ", st.Mode())
			if st.Mode().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				line += " " + string(data)
			}
			out = append(out, line)
			return nil
		}))
	}
	return out
}

// newFarOnDisk is newFar with the state directory on a file system of 64 KiB.
func newFarOnDisk(t *testing.T) *far {
	t.Helper()
	need.Root(t)
	f := newFar(t)
	require.NoError(t, os.MkdirAll(f.state, 0o700))
	require.NoError(t, unix.Mount("tmpfs", f.state, "tmpfs", 0, "size=64k,mode=0700"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(f.state, unix.MNT_DETACH)) })
	return f
}

// Requirement A12: no operation has an effect if its intent is not written, for each
// kind of operation and of disk error.
func TestNoEffectIfItsIntentCannotBeWritten(t *testing.T) {
	for name, fault := range map[string]func(f *far) (mend func()){
		"disk is full":          (*far).fillDisk,
		"file system read-only": (*far).makeReadOnly,
		"ledger is a directory": (*far).ledgerAsDirectory,
		"ledger is a symlink":   (*far).ledgerAsLink,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarOnDisk(t)
			f.do(write(f.path("open", "old"), "old"),
				runtimes.Op{Dir: &runtimes.MakeDir{Path: f.path("open", "tree"), Mode: 0o755, Own: true}},
				write(f.path("open", "tree", "leaf"), "leaf"), makeDir(f.path("open", "jobs"), 0o711, true),
				makeDir(f.path("open", "jobs", "mill"), 0o711, true), user("paul", 7742002, false))
			mend := fault(f)
			before := f.tree()
			for kind, op := range f.everyEffect() {
				r := f.ask(f.stamp(), op)
				require.NotNil(t, r.Fault, "%s was done without its intent", kind)
				require.Equal(t, runtimes.CodeIO, r.Fault.Code, "%s: %v", kind, r.Fault)
				require.Empty(t, r.Results, kind)
				require.Equal(t, before, f.tree(), "%s had an effect without its intent", kind)
			}
			require.Equal(t, "old", string(f.one2(read(f.path("open", "old"))).Data), "reading needs no intent")
			mend()
			f.stops("plain", "u")
			for kind, op := range f.everyEffect() {
				if kind == "remove" {
					continue // of what another writes
				}
				require.Nil(t, f.ask(f.stamp(), op).Fault, kind)
			}
		})
	}
}

// fillDisk leaves no space for another entry of the ledger.
func (f *far) fillDisk() (mend func()) {
	f.Helper()
	filler := filepath.Join(f.state, "filler")
	require.ErrorIs(f, os.WriteFile(filler, make([]byte, 128<<10), 0o600), unix.ENOSPC)
	// The last page of the ledger takes a few entries more. Up to the first that
	// it does not take, each effect has its intent.
	for i := range 1000 {
		path := f.path("open", "tree", fmt.Sprint("filled-", i)) // in a tree of Berth's, so that only the ledger grows
		r := f.ask(f.stamp(), write(path, ""))
		if r.Fault != nil {
			require.Contains(f, r.Fault.Message, "no space left on device")
			require.NoFileExists(f, path)
			return func() { require.NoError(f, os.Remove(filler)) }
		}
		ledger, err := os.ReadFile(filepath.Join(f.state, "ledger.jsonl"))
		require.NoError(f, err)
		require.Contains(f, string(ledger), `"write `+path+`"`)
	}
	f.Fatal("the disk does not become full")
	return nil
}

func (f *far) makeReadOnly() (mend func()) {
	f.Helper()
	remount := func(flags uintptr) {
		require.NoError(f, unix.Mount("", f.state, "", unix.MS_REMOUNT|flags, ""))
	}
	remount(unix.MS_RDONLY)
	return func() { remount(0) }
}

func (f *far) ledgerAsDirectory() (mend func()) {
	f.Helper()
	return f.replaceLedger(func(name string) error { return os.Mkdir(name, 0o700) })
}

func (f *far) ledgerAsLink() (mend func()) {
	f.Helper()
	return f.replaceLedger(func(name string) error { return os.Symlink("/dev/null", name) })
}

// replaceLedger replaces the ledger with another file; mend restores it.
func (f *far) replaceLedger(other func(name string) error) (mend func()) {
	f.Helper()
	name := filepath.Join(f.state, "ledger.jsonl")
	require.NoError(f, os.Rename(name, name+".aside"))
	require.NoError(f, other(name))
	return func() {
		require.NoError(f, os.Remove(name))
		require.NoError(f, os.Rename(name+".aside", name))
	}
}

// A program can read the intent of its own run.
func TestIntentIsInTheLedgerWhenTheEffectBegins(t *testing.T) {
	f := newFar(t)
	ledger := filepath.Join(f.state, "ledger.jsonl")
	script := "cat " + ledger
	out := string(f.one(runtimes.Op{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", script}}}).Data)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	require.Contains(t, last, `"op":"run sh -c `+script+`"`)
	for _, id := range []string{`"commit":"c0ffee"`, `"correlation_id":"corr"`, `"action_id":"action-1"`} {
		require.Contains(t, last, id)
	}
	// A failed operation leaves its intent, and the step at which it stopped.
	r := f.ask(f.stamp(), runtimes.Op{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", "exit 3"}}})
	require.Equal(t, runtimes.CodeExit, r.Fault.Code)
	text, err := os.ReadFile(ledger)
	require.NoError(t, err)
	require.Contains(t, string(text), `"op":"run sh -c exit 3"`)
	require.Contains(t, string(text), "stopped at run sh -c exit 3: exit")
}
