package gitrepo

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"
)

// A store goes on being read while a large pack is taken in, which may take
// seconds.
func TestReadingGoesOnWhileAPackIsTakenIn(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "s.git")
	require.NoError(t, initStore(dir))
	s := openStore(dir)
	t.Cleanup(func() { require.NoError(t, s.close()) })
	var set, more objectSet
	here := set.add(plumbing.BlobObject, []byte("here"))
	require.NoError(t, s.put(set.pack()))
	comes := more.add(plumbing.BlobObject, []byte("comes"))
	pack := more.pack()

	in, out := io.Pipe()
	taken := make(chan error, 1)
	go func() { taken <- s.take(t.Context(), in, largePack, false, false) }()
	_, err := out.Write(pack[:20])
	require.NoError(t, err)
	read := make(chan error, 1)
	go func() {
		_, _, _, err := s.read(here, maxObject)
		read <- err
	}()
	select {
	case err := <-read:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		require.Fail(t, "reading waits for the pack")
	}
	require.False(t, s.has(comes))
	_, err = out.Write(pack[20:])
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.NoError(t, <-taken)
	_, data, _, err := s.read(comes, maxObject)
	require.NoError(t, err)
	require.Equal(t, "comes", string(data))

	// Half a pack is none, and leaves nothing.
	require.Error(t, s.take(t.Context(), bytes.NewReader(pack[:len(pack)-5]), largePack, false, false))
	left, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "tmp_*"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, s.take(t.Context(), bytes.NewReader((&objectSet{}).pack()), emptyPack, true, false), "a pack without objects")
}

// What came lately is at hand without a look at the disk, and is what stands
// there; what unfolds to more than is kept is on the disk alone.
func TestWhatCameLatelyIsAtHand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "s.git")
	require.NoError(t, initStore(dir))
	s := openStore(dir)
	t.Cleanup(func() { require.NoError(t, s.close()) })

	// Trees that differ in one entry, of which Git packs all but one as differences.
	from := filepath.Join(t.TempDir(), "from.git")
	require.NoError(t, initStore(from))
	git := func(in string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"--git-dir", from}, args...)...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.Output()
		require.NoError(t, err, args)
		return string(out)
	}
	var ids []string
	for i := range 20 {
		var tree strings.Builder
		for f := range 60 {
			fmt.Fprintf(&tree, "100644 blob %040x\tf%02d-%d\n", f+1, f, max(0, i-f))
		}
		ids = append(ids, strings.TrimSpace(git(tree.String(), "mktree", "--missing")))
	}
	pack := git(strings.Join(ids, "\n")+"\n", "pack-objects", "--stdout", "--delta-base-offset")
	require.NoError(t, s.put([]byte(pack)))
	cold := openStore(dir)
	t.Cleanup(func() { require.NoError(t, cold.close()) })
	for _, id := range ids {
		h := plumbing.NewHash(id)
		_, kept := s.lately.Get(h)
		require.True(t, kept)
		kind, data, _, err := s.read(h, maxObject)
		require.NoError(t, err)
		same, stored, _, err := cold.read(h, maxObject)
		require.NoError(t, err)
		require.Equal(t, same, kind)
		require.Equal(t, stored, data)
		_, some, more, err := s.read(h, 7)
		require.NoError(t, err)
		require.Equal(t, stored[:7], some)
		require.True(t, more)
	}

	var large objectSet
	h := large.add(plumbing.BlobObject, make([]byte, int(objectCache)+1))
	require.NoError(t, s.put(large.pack()))
	_, kept := s.lately.Get(h)
	require.False(t, kept)
	_, data, more, err := s.read(h, 10)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, make([]byte, 10), data)

	require.Error(t, s.put([]byte(pack[:len(pack)/2])), "half a pack")
}
