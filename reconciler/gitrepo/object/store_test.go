package object

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"
)

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
	s.Recent.Clear()
	read := make(chan error, 1)
	go func() {
		_, _, _, err := s.Read(here, MaxObject)
		read <- err
	}()
	select {
	case err := <-read:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		require.Fail(t, "a read is blocked by the pack")
	}
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

// Objects of a small pack are read from the cache and equal the stored ones.
// Objects that are too large or were not stored are not cached.
func TestRecentObjectsAreCached(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "s.git")
	require.NoError(t, InitStore(dir))
	s := OpenStore(dir)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	kept := func(h plumbing.Hash) bool {
		_, ok := s.Recent.Get(h)
		return ok
	}

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
	for i := range 20 {
		var tree strings.Builder
		for f := range 60 {
			fmt.Fprintf(&tree, "100644 blob %040x\tf%02d-%d\n", f+1, f, max(0, i-f))
		}
		ids = append(ids, strings.TrimSpace(git(tree.String(), "mktree", "--missing")))
	}
	whole := git(strings.Join(ids, "\n")+"\n", "pack-objects", "--stdout", "--window=0")
	require.Error(t, s.AddPack([]byte(whole[:len(whole)/2])), "half a pack")
	require.False(t, slices.ContainsFunc(ids, func(id string) bool { return kept(plumbing.NewHash(id)) }))
	for _, bases := range []string{"--delta-base-offset", "--no-delta-base-offset"} {
		s.Recent.Clear()
		pack := git(strings.Join(ids, "\n")+"\n", "pack-objects", "--stdout", bases)
		require.Less(t, len(pack), len(whole)*2/3)
		require.NoError(t, s.AddPack([]byte(pack)))
		cold := OpenStore(dir)
		t.Cleanup(func() { require.NoError(t, cold.Close()) })
		for _, id := range ids {
			h := plumbing.NewHash(id)
			stored, want, _, err := cold.Read(h, MaxObject)
			require.NoError(t, err)
			s.mu.Lock() // reading needs no lock on the storage
			kind, data, more, err := s.Read(h, MaxObject)
			_, some, cut, few := s.Read(h, 7)
			s.mu.Unlock()
			require.NoError(t, err)
			require.Equal(t, stored, kind)
			require.Equal(t, want, data)
			require.False(t, more)
			require.NoError(t, few)
			require.Equal(t, want[:7], some)
			require.True(t, cut)
		}
	}

	var large Batch
	a := large.Add(plumbing.BlobObject, bytes.Repeat([]byte("a"), int(objectCache)*2/3))
	b := large.Add(plumbing.BlobObject, bytes.Repeat([]byte("b"), int(objectCache)*2/3))
	_, err := unpack(large.Pack(), int64(objectCache))
	require.ErrorIs(t, err, ErrTooLarge)
	require.NoError(t, s.AddPack(large.Pack()))
	require.False(t, kept(a) || kept(b))
	_, data, more, err := s.Read(a, 10)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, "aaaaaaaaaa", string(data))

	// A delta may expand to any size too.
	base := bytes.Repeat([]byte("c"), 1<<16)
	bomb := binary.AppendUvarint(binary.AppendUvarint(nil, 1<<16), 1<<30)
	for range 1 << 14 {
		bomb = append(bomb, 0x80) // git help format-pack: copy the first 64 KiB of the base
	}
	pack := []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x02")
	pack = append(pack, packed(plumbing.BlobObject, base, nil)...)
	of := Hash(plumbing.BlobObject, base)
	pack = append(pack, packed(plumbing.REFDeltaObject, bomb, of[:])...)
	_, err = unpack(pack, int64(objectCache))
	require.ErrorIs(t, err, ErrTooLarge)

	// A pack that cannot be stored is not cached.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "objects")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "objects"), nil, 0o600))
	var lost Batch
	h := lost.Add(plumbing.BlobObject, []byte("lost"))
	require.Error(t, s.AddPack(lost.Pack()))
	require.False(t, kept(h))
}

// packed returns one entry of a pack; base is the base of a delta.
func packed(kind plumbing.ObjectType, data, base []byte) []byte {
	out := bytes.NewBuffer(append(entryHead(kind, len(data)), base...))
	z := zlib.NewWriter(out)
	_, _ = z.Write(data)
	_ = z.Close()
	return out.Bytes()
}
