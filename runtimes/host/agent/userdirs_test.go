package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/need"
	"berth/runtimes"
)

func userDir(in, name string, uid int) runtimes.Op {
	return runtimes.Op{UserDir: &runtimes.UserDir{In: in, Name: name, UID: uid}}
}

// A directory of a user is the user's alone. After the removal of the account it is root's, so
// that a later user with the uid does not read it, and it returns to the same user.
func TestUsersDirectoriesAreOfOneUser(t *testing.T) {
	need.Root(t)
	f := newFar(t)
	jobs := f.path("open", "jobs")
	unit := filepath.Join(jobs, "mill")
	of := func(path string) string {
		st, err := os.Lstat(path)
		require.NoError(t, err)
		return fmt.Sprintf("%s of %d", st.Mode(), st.Sys().(*syscall.Stat_t).Uid)
	}
	f.do(makeDir(jobs, 0o711, true), makeDir(unit, 0o711, true), user("marie", 7742001, false), user("paul", 7742002, false))
	require.True(t, f.one(userDir(unit, "marie", 7742001)).Changed)
	require.False(t, f.one(userDir(unit, "marie", 7742001)).Changed)
	f.do(userDir(unit, "paul", 7742002))
	maries, pauls := filepath.Join(unit, "marie-7742001"), filepath.Join(unit, "paul-7742002")
	require.Equal(t, "drwx------ of 7742001", of(maries))
	require.NoError(t, os.WriteFile(filepath.Join(maries, "out"), []byte("text"), 0o600))

	f.do(user("marie", 7742001, true), user("paul", 7742002, true))
	require.Equal(t, "drwx------ of 0", of(maries))
	require.NoDirExists(t, pauls, "it was empty")
	f.do(user("jane", 7742001, false), userDir(unit, "jane", 7742001))
	require.Equal(t, "drwx------ of 0", of(maries), "jane has marie's uid")
	f.do(user("jane", 7742001, true), user("marie", 7742001, false), userDir(unit, "marie", 7742001))
	require.Equal(t, "drwx------ of 7742001", of(maries))

	f.do(user("paul", 7742002, false), userDir(unit, "paul", 7742002))
	require.False(t, f.one(removeEmpty(unit)).Changed, "marie has a file there")
	require.NoDirExists(t, pauls)
	require.NoError(t, os.Remove(filepath.Join(maries, "out")))
	require.True(t, f.one(removeEmpty(unit)).Changed)
}

// Nothing that is in the way of a user's directory is used or changed.
func TestUsersDirectoriesReplaceNothing(t *testing.T) {
	need.Root(t)
	f := newFar(t)
	jobs := f.path("open", "jobs")
	unit := filepath.Join(jobs, "mill")
	f.do(makeDir(jobs, 0o711, true), makeDir(unit, 0o711, true), user("marie", 7742001, false), user("paul", 7742002, false))
	maries := filepath.Join(unit, "marie-7742001")
	for what, put := range map[string]func() error{
		"link":                func() error { return os.Symlink(f.etc, maries) },
		"file":                func() error { return os.WriteFile(maries, nil, 0o600) },
		"directory of paul's": func() error { return os.Mkdir(maries, 0o755) },
	} {
		require.NoError(t, put())
		require.NoError(t, os.Lchown(maries, 7742002, 7742002))
		before := f.tree()
		f.fails("refused", userDir(unit, "marie", 7742001))
		require.Equal(t, before, f.tree(), what)
		require.NoError(t, os.Remove(maries))
	}
	for _, op := range []runtimes.Op{
		userDir(unit, "marie", 7742002), userDir(unit, "alice", 1500), userDir(unit, "../x", 7742001),
		userDir(jobs, "marie", 7742001), userDir(f.path("open"), "marie", 7742001), userDir(unit+"/..", "marie", 7742001),
		userDir("/tmp", "marie", 7742001),
	} {
		f.fails("refused", op)
	}
	f.fails("notfound", userDir(unit, "nobody", 7742009))

	// One that fails ends a request; those before it are made.
	several := f.ask(f.stamp(), userDir(unit, "marie", 7742001), userDir(unit, "nobody", 7742009), userDir(unit, "paul", 7742002))
	require.Equal(t, runtimes.CodeNotFound, several.Fault.Code)
	require.Len(t, several.Results, 1)
	require.DirExists(t, maries)
	require.NoDirExists(t, filepath.Join(unit, "paul-7742002"))
	other := newFar(t)
	foreign := other.path("open", "jobs", "mill")
	require.NoError(t, os.MkdirAll(foreign, 0o755))
	other.do(user("marie", 7742001, false))
	other.fails("foreign", userDir(foreign, "marie", 7742001))
}
