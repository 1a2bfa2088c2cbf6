package object

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"berth/examples/await"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"
)

// A damaged header may name four billion objects. go-git would reserve memory for each.
func TestPackNamesMoreObjectsThanItHolds(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "s.git")
	require.NoError(t, InitStore(dir))
	s := OpenStore(dir)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var set Batch
	set.Add(plumbing.BlobObject, nil) // the smallest object
	pack := set.Pack()
	require.NoError(t, s.TakePack(t.Context(), bytes.NewReader(pack), int64(len(pack)), false, false))
	pack[8] = 0x7f
	require.ErrorContains(t, s.TakePack(t.Context(), bytes.NewReader(pack), int64(len(pack)), false, false), "names 2130706433 objects")
}

// Reads are not blocked while a large pack is imported, which may take seconds.
func TestReadDuringPackImport(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "s.git")
	require.NoError(t, InitStore(dir))
	s := OpenStore(dir)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var set, more Batch
	here := set.Add(plumbing.BlobObject, []byte("here"))
	require.NoError(t, s.AddPack(set.Pack()))
	comes := more.Add(plumbing.BlobObject, []byte("comes"))
	pack := more.Pack()

	in, out := io.Pipe()
	taken := make(chan error, 1)
	go func() { taken <- s.TakePack(t.Context(), in, largePack, false, false) }()
	_, err := out.Write(pack[:20])
	require.NoError(t, err)
	read := make(chan error, 1)
	go func() {
		_, _, _, err := s.Read(here, MaxObject)
		read <- err
	}()
	require.NoError(t, await.Receive(t, "a read during the import", read, func() any { return "nothing: the pack blocks it" }))
	require.False(t, s.Has(comes))
	_, err = out.Write(pack[20:])
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.NoError(t, <-taken)
	_, data, _, err := s.Read(comes, MaxObject)
	require.NoError(t, err)
	require.Equal(t, "comes", string(data))

	// A truncated pack is rejected and leaves no files.
	require.Error(t, s.TakePack(t.Context(), bytes.NewReader(pack[:len(pack)-5]), largePack, false, false))
	left, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "tmp_*"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, s.TakePack(t.Context(), bytes.NewReader((&Batch{}).Pack()), EmptyPack, true, false), "a pack without objects")
}

// A stored pack with deltas reads back, whole and truncated. A truncated pack is
// rejected.
func TestStoredPackReadsBack(t *testing.T) {
	t.Parallel()
	// Trees that differ in one entry; Git packs them as deltas.
	from := filepath.Join(t.TempDir(), "from.git")
	require.NoError(t, InitStore(from))
	git := func(in string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"--git-dir", from}, args...)...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.Output()
		require.NoError(t, err, args)
		return string(out)
	}
	var ids []string
	var want [][]byte
	for i := range 20 {
		var tree strings.Builder
		for f := range 60 {
			fmt.Fprintf(&tree, "100644 blob %040x\tf%02d-%d\n", f+1, f, max(0, i-f))
		}
		id := strings.TrimSpace(git(tree.String(), "mktree", "--missing"))
		ids, want = append(ids, id), append(want, []byte(git("", "cat-file", "tree", id)))
	}
	whole := git(strings.Join(ids, "\n")+"\n", "pack-objects", "--stdout", "--window=0")
	for _, bases := range []string{"--delta-base-offset", "--no-delta-base-offset"} {
		s := OpenStore(filepath.Join(t.TempDir(), "s.git"))
		require.NoError(t, InitStore(s.Dir))
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.Error(t, s.AddPack([]byte(whole[:len(whole)/2])), "half a pack")
		require.False(t, s.Has(plumbing.NewHash(ids[0])))
		pack := git(strings.Join(ids, "\n")+"\n", "pack-objects", "--stdout", bases)
		require.Less(t, len(pack), len(whole)*2/3)
		require.NoError(t, s.AddPack([]byte(pack)))
		for i, id := range ids {
			h := plumbing.NewHash(id)
			kind, data, more, err := s.Read(h, MaxObject)
			require.NoError(t, err)
			require.Equal(t, plumbing.TreeObject, kind)
			require.Equal(t, want[i], data)
			require.False(t, more)
			_, some, cut, err := s.Read(h, 7)
			require.NoError(t, err)
			require.Equal(t, want[i][:7], some)
			require.True(t, cut)
		}
	}

	// A pack that cannot be stored is an error.
	s := OpenStore(filepath.Join(t.TempDir(), "s.git"))
	require.NoError(t, InitStore(s.Dir))
	require.NoError(t, os.RemoveAll(filepath.Join(s.Dir, "objects")))
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "objects"), nil, 0o600))
	var lost Batch
	h := lost.Add(plumbing.BlobObject, []byte("lost"))
	require.Error(t, s.AddPack(lost.Pack()))
	require.False(t, s.Has(h))
}
