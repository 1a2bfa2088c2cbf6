package agent_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"berth/examples/need"
	"berth/runtimes"
)

func write(path, text string) runtimes.Op {
	return runtimes.Op{Write: &runtimes.WriteFile{Path: path, Data: []byte(text), Mode: 0o640}}
}

func read(path string) runtimes.Op { return runtimes.Op{Read: &runtimes.ReadFile{Path: path}} }

func TestWriteChangesOnlyWhatDiffers(t *testing.T) {
	f := newFar(t)
	path := f.path("open", "a.conf")
	require.True(t, f.one(write(path, "one")).Changed)
	require.False(t, f.one(write(path, "one")).Changed, "the same again")
	require.True(t, f.one(write(path, "two")).Changed)
	require.Equal(t, "two", string(f.one(read(path)).Data))
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), st.Mode().Perm())
	require.True(t, f.one(runtimes.Op{Write: &runtimes.WriteFile{Path: path, Data: []byte("two"), Mode: 0o600}}).Changed, "another mode")
	require.True(t, f.one(write(f.path("open", "empty"), "")).Changed)
	require.Equal(t, []string{"a.conf", "empty"}, f.one(runtimes.Op{List: &runtimes.List{Path: f.path("open")}}).Names,
		"no temporary file stays")

	f.fails("notfound", write(f.path("open", "none", "a"), "x"))
	f.fails("invalid", runtimes.Op{Write: &runtimes.WriteFile{Path: path, Mode: 0o4755}})
	f.fails("notfound", runtimes.Op{Write: &runtimes.WriteFile{Path: path, Mode: 0o600, Owner: "nobody-here"}})
	f.fails("notfound", runtimes.Op{Write: &runtimes.WriteFile{Path: path, Mode: 0o600, Group: "nobody-here"}})
}

// A file with several hard links gets a new inode; the other links keep content and
// owner.
func TestWriteKeepsOtherHardLinks(t *testing.T) {
	f := newFar(t)
	path, other := f.path("open", "a"), filepath.Join(t.TempDir(), "other")
	f.do(write(path, "same"))
	require.NoError(t, os.Link(path, other))
	require.True(t, f.one(write(path, "same")).Changed)
	require.True(t, f.one(write(path, "new")).Changed)
	data, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, "same", string(data))
}

func TestOwnerAndGroupAreSet(t *testing.T) {
	need.Root(t)
	f := newFar(t)
	path := f.path("open", "owned")
	f.do(runtimes.Op{Write: &runtimes.WriteFile{Path: path, Mode: 0o600, Owner: "daemon", Group: "alice"}},
		runtimes.Op{Dir: &runtimes.MakeDir{Path: f.path("open", "d"), Mode: 0o1777, Owner: "alice"}},
		runtimes.Op{Secret: &runtimes.MakeSecret{Path: f.path("open", "s"), Bytes: 32, Mode: 0o400, Owner: "daemon"}})
	for name, want := range map[string][2]uint32{"owned": {1, 1500}, "d": {1500, 1500}, "s": {1, 1}} {
		st, err := os.Stat(f.path("open", name))
		require.NoError(t, err)
		sys := st.Sys().(*syscall.Stat_t)
		require.Equal(t, want, [2]uint32{sys.Uid, sys.Gid}, name)
	}
	require.True(t, f.one(runtimes.Op{Write: &runtimes.WriteFile{Path: path, Mode: 0o600, Owner: "alice"}}).Changed, "another owner")
	require.True(t, f.one(runtimes.Op{Dir: &runtimes.MakeDir{Path: f.path("open", "d"), Mode: 0o755, Owner: "alice"}}).Changed)
	require.False(t, f.one(runtimes.Op{Dir: &runtimes.MakeDir{Path: f.path("open", "d"), Mode: 0o755, Owner: "alice"}}).Changed)
}

func TestReadIsBounded(t *testing.T) {
	f := newFar(t)
	f.do(write(f.path("open", "a"), "0123456789"))
	require.True(t, f.one(read(f.path("open", "none"))).Missing)
	require.True(t, f.one(read(f.path("open", "none", "deeper"))).Missing)
	require.Equal(t, "0123", string(f.one(runtimes.Op{Read: &runtimes.ReadFile{Path: f.path("open", "a"), Max: 4}}).Data))
	f.fails("invalid", runtimes.Op{Read: &runtimes.ReadFile{Path: f.path("open", "a"), Max: -1}})
	f.fails("refused", read(f.path("open")))
	require.NoError(t, syscall.Mkfifo(f.path("open", "pipe"), 0o600))
	f.fails("refused", read(f.path("open", "pipe"))) // and does not wait for a writer
}

func TestRemoveFollowsNoLink(t *testing.T) {
	f := newFar(t)
	keep := filepath.Join(t.TempDir(), "keep")
	require.NoError(t, os.MkdirAll(keep, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(keep, "file"), nil, 0o600))
	tree := f.path("open", "tree")
	require.NoError(t, os.MkdirAll(filepath.Join(tree, "a", "b"), 0o755))
	for i := range 600 { // more than one read of the directory
		require.NoError(t, os.WriteFile(filepath.Join(tree, "a", strings.Repeat("n", 1+i%40)+string(rune('a'+i/40))), nil, 0o600))
	}
	require.NoError(t, os.Symlink(keep, filepath.Join(tree, "a", "b", "out")))
	require.NoError(t, os.Symlink(keep, f.path("open", "link")))
	f.adopt(tree, f.path("open", "link"))

	require.True(t, f.one(runtimes.Op{Remove: &runtimes.Remove{Path: f.path("open", "link"), Tree: true}}).Changed)
	f.fails("refused", runtimes.Op{Remove: &runtimes.Remove{Path: tree}})
	require.True(t, f.one(runtimes.Op{Remove: &runtimes.Remove{Path: tree, Tree: true}}).Changed)
	require.NoDirExists(t, tree)
	require.FileExists(t, filepath.Join(keep, "file"), "links are removed, not followed")
	require.False(t, f.one(runtimes.Op{Remove: &runtimes.Remove{Path: tree, Tree: true}}).Changed)
	require.False(t, f.one(runtimes.Op{Remove: &runtimes.Remove{Path: f.path("open", "x", "y")}}).Changed)

	// Remove also removes temporary files of a crash, and no other file.
	for _, name := range []string{".key.ABCDEFGHIJ.berth", ".keys.ABCDEFGHIJ.berth", ".key.own"} {
		require.NoError(t, os.WriteFile(f.path("open", name), nil, 0o600))
	}
	require.False(t, f.one(runtimes.Op{Remove: &runtimes.Remove{Path: f.path("open", "key")}}).Changed)
	require.NoFileExists(t, f.path("open", ".key.ABCDEFGHIJ.berth"))
	require.FileExists(t, f.path("open", ".keys.ABCDEFGHIJ.berth"))
	require.FileExists(t, f.path("open", ".key.own"))
}

func TestDirectoriesAndLinks(t *testing.T) {
	f := newFar(t)
	dir := func(mode uint32) runtimes.Op {
		return runtimes.Op{Dir: &runtimes.MakeDir{Path: f.path("open", "d"), Mode: mode}}
	}
	require.True(t, f.one(dir(0o750)).Changed)
	require.False(t, f.one(dir(0o750)).Changed)
	require.True(t, f.one(dir(0o700)).Changed)
	f.fails("invalid", dir(0o2755))
	f.fails("notfound", runtimes.Op{Dir: &runtimes.MakeDir{Path: f.path("open", "no", "parent"), Mode: 0o755}})
	f.do(write(f.path("open", "file"), ""))
	f.fails("refused", runtimes.Op{Dir: &runtimes.MakeDir{Path: f.path("open", "file"), Mode: 0o755}})

	link := func(target string) runtimes.Op {
		return runtimes.Op{Link: &runtimes.MakeLink{Path: f.path("open", "l"), Target: target}}
	}
	require.True(t, f.one(link("d")).Changed)
	require.False(t, f.one(link("d")).Changed)
	require.True(t, f.one(link(f.path("open", "file"))).Changed)
	to, err := os.Readlink(f.path("open", "l"))
	require.NoError(t, err)
	require.Equal(t, f.path("open", "file"), to)
	f.fails("refused", link("/etc/passwd"))
	f.fails("refused", link("../../etc"))
	f.fails("refused", runtimes.Op{Link: &runtimes.MakeLink{Path: f.path("open", "file"), Target: "d"}})
	require.Empty(t, f.one(runtimes.Op{List: &runtimes.List{Path: f.path("open", "none")}}).Names)
}

// A directory is full if the file system that is mounted there is.
func TestStatShowsFullFileSystem(t *testing.T) {
	need.Root(t)
	f := newFar(t)
	full := func() bool {
		return f.one(runtimes.Op{Stat: &runtimes.Stat{Paths: []string{f.path("open")}}}).Stats[0].Full
	}
	for options, want := range map[string]bool{"size=64k": true, "size=32m": false, "size=32m,nr_inodes=1": true} {
		require.NoError(t, unix.Mount("tmpfs", f.path("open"), "tmpfs", 0, options))
		got := full()
		require.NoError(t, unix.Unmount(f.path("open"), unix.MNT_DETACH))
		require.Equal(t, want, got, options)
	}
}

func TestStatReturnsTypeAndDigest(t *testing.T) {
	f := newFar(t)
	f.do(write(f.path("open", "a"), "content"), runtimes.Op{Link: &runtimes.MakeLink{Path: f.path("open", "l"), Target: "a"}})
	require.NoError(t, os.WriteFile(f.path("open", "big"), make([]byte, 16<<20+1), 0o600))
	stats := f.one(runtimes.Op{Stat: &runtimes.Stat{Paths: []string{
		f.path("open", "a"), f.path("open", "l"), f.path("open"), f.path("open", "none"), f.path("open", "x", "y"), f.path("open", "big"),
		"/dev/null",
	}}}).Stats
	sum := sha256.Sum256([]byte("content"))
	require.Equal(t, runtimes.FileStat{Path: f.path("open", "a"), Exists: true, Type: "file", Mode: 0o640, UID: uint32(os.Geteuid()),
		Size: 7, SHA256: hex.EncodeToString(sum[:]), Made: true}, stats[0])
	require.Equal(t, "link", stats[1].Type)
	require.Equal(t, "dir", stats[2].Type)
	require.False(t, stats[2].Full)
	require.False(t, stats[3].Exists)
	require.False(t, stats[4].Exists)
	require.Empty(t, stats[5].SHA256)
	require.Equal(t, "char", stats[6].Type)
	// Looking is all that is allowed there.
	f.fails("refused", read("/dev/null"))
	f.fails("refused", write("/dev/x", ""))
	f.fails("refused", runtimes.Op{Stat: &runtimes.Stat{Paths: []string{"/etc/passwd"}}})

	// And its digest elsewhere.
	require.NoError(t, os.Mkdir(f.path("hashed"), 0o755))
	require.NoError(t, os.WriteFile(f.path("hashed", "program"), []byte("content"), 0o700))
	program := f.path("hashed", "program")
	require.Equal(t, hex.EncodeToString(sum[:]), f.one(runtimes.Op{Stat: &runtimes.Stat{Paths: []string{program}}}).Stats[0].SHA256)
	f.fails("refused", read(program))
	f.fails("refused", write(program, ""))
}

func TestSecretIsMadeOnce(t *testing.T) {
	f := newFar(t)
	secret := func(name string) runtimes.Op {
		return runtimes.Op{Secret: &runtimes.MakeSecret{Path: f.path("open", name), Bytes: 32, Mode: 0o400}}
	}
	require.True(t, f.one(secret("key")).Changed)
	first, err := os.ReadFile(f.path("open", "key"))
	require.NoError(t, err)
	require.Len(t, first, 32)
	require.False(t, f.one(secret("key")).Changed)
	again, err := os.ReadFile(f.path("open", "key"))
	require.NoError(t, err)
	require.Equal(t, first, again, "never changed")
	f.fails("invalid", runtimes.Op{Secret: &runtimes.MakeSecret{Path: f.path("open", "x"), Bytes: 1, Mode: 0o400}})
	f.fails("invalid", runtimes.Op{Secret: &runtimes.MakeSecret{Path: f.path("open", "x"), Bytes: 32, Mode: 0o444}})
}

// Neither the text of a path nor a link leads out of the profile's paths.
func TestPathsDoNotLeadOut(t *testing.T) {
	f := newFar(t)
	out := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(out, "secret"), []byte("canary"), 0o600))
	require.NoError(t, os.Symlink(out, f.path("open", "dirlink")))
	require.NoError(t, os.Symlink(filepath.Join(out, "secret"), f.path("open", "filelink")))
	require.NoError(t, os.Symlink(out, f.path("linked")))
	hostile := []string{
		"", "/", "relative", "open/a", "/etc/passwd", f.dir, f.path("open") + "/", f.path("open") + "/../x", f.path("open") + "//a",
		f.path("open") + "/./a", f.dir + "/open/../../etc/passwd", f.path("openx"), f.path("open", "a\x00b"), f.path("open", "a\nb"),
		f.path("one-"), f.path("one-a", "b"), f.path("one-a b"), f.path("a", "b", "fixed"), f.dir + "/../fixed", f.dir + "/./fixed",
		f.path("linked", "fixed"), f.path("open", "dirlink", "secret"), f.path("open", "dirlink", "new"),
		f.path("open", strings.Repeat("a/", 600)+"b"),
		"/proc/self/root/etc/passwd", f.path("open") + "\x7f",
	}
	for _, path := range hostile {
		f.fails("refused", read(path))
		f.fails("refused", write(path, "x"))
		f.fails("refused", runtimes.Op{Remove: &runtimes.Remove{Path: path, Tree: true}})
		f.fails("refused", runtimes.Op{Dir: &runtimes.MakeDir{Path: path, Mode: 0o755}})
		f.fails("refused", runtimes.Op{Link: &runtimes.MakeLink{Path: path, Target: "a"}})
		f.fails("refused", runtimes.Op{Stat: &runtimes.Stat{Paths: []string{path}}})
		f.fails("refused", runtimes.Op{List: &runtimes.List{Path: path}})
		f.fails("refused", runtimes.Op{Secret: &runtimes.MakeSecret{Path: path, Bytes: 32, Mode: 0o400}})
	}
	f.fails("refused", read(f.path("open", "filelink")))
	f.fails("foreign", write(f.path("open", "filelink"), "x"))
	f.fails("refused", runtimes.Op{List: &runtimes.List{Path: f.path("open", "dirlink")}})
	f.fails("refused", runtimes.Op{Dir: &runtimes.MakeDir{Path: f.path("open", "dirlink"), Mode: 0o755}})
	left, err := os.ReadDir(out)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing was made or removed outside")
	require.True(t, f.one(write(f.path("one-a.b_C-1"), "x")).Changed, "the profile's own path is allowed")
}

// No written file is executable.
func TestProfileChecksWhatIsMade(t *testing.T) {
	f := newFar(t)
	never := f.path("open", "x-never")
	for _, op := range []runtimes.Op{
		write(never, "x"),
		write(f.path("open", "conf"), "PluginDir=/tmp"),
		{Secret: &runtimes.MakeSecret{Path: never, Bytes: 16, Mode: 0o400}},
		{Dir: &runtimes.MakeDir{Path: never, Mode: 0o755}},
		{Link: &runtimes.MakeLink{Path: never, Target: f.path("open", "a")}},
	} {
		require.Contains(t, f.fails("refused", op), "like this")
	}
	for _, mode := range []uint32{0o755, 0o777, 0o645, 0o4644} {
		f.fails("invalid", runtimes.Op{Write: &runtimes.WriteFile{Path: f.path("open", "x"), Data: []byte("x"), Mode: mode}})
	}
	names, err := os.ReadDir(f.path("open"))
	require.NoError(t, err)
	require.Empty(t, names)
}
