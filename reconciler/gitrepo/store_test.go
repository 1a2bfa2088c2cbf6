package gitrepo

import (
	"bytes"
	"io"
	"path/filepath"
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
	require.NoError(t, s.put(bytes.NewReader(set.pack())))
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
