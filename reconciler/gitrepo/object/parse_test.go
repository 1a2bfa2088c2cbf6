package object

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"

	"berth/reconciler"
)

func FuzzParseTree(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("100644 a\x00" + strings.Repeat("x", 20) + "40000 b\x00" + strings.Repeat("y", 20)))
	f.Add([]byte("100644 a\x00short"))
	f.Add([]byte(" a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := ParseTree(b)
		if err != nil {
			require.ErrorIs(t, err, reconciler.ErrUnreadable)
			return
		}
		again, err := ParseTree(EncodeTree(entries))
		require.NoError(t, err)
		require.Len(t, again, len(entries))
		names := map[string]string{}
		for _, e := range again {
			p := PathName(e.Name)
			require.NotContains(t, p, "/")
			require.NotEmpty(t, p)
			if other, ok := names[p]; ok {
				require.Equal(t, other, e.Name, "distinct names have distinct paths")
			}
			names[p] = e.Name
		}
	})
}

func FuzzParseCommit(f *testing.F) {
	tree := plumbing.NewHash(emptyTree)
	f.Add(EncodeCommit(tree, []plumbing.Hash{tree}, "A <a@b>", time.Unix(12, 0), "subject\n\nbody\n\nEpoch: 1"))
	f.Add([]byte("tree " + emptyTree + "\nauthor <>< 9x\n\n"))
	f.Add([]byte("parent x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseCommit(tree, b)
		if err != nil {
			return
		}
		require.False(t, c.Tree.IsZero())
		_, _, _ = c.Public(), c.Body(), c.Trailer("Epoch")
	})
}

func TestCommitRoundTrip(t *testing.T) {
	tree, parent := plumbing.NewHash(emptyTree), plumbing.NewHash(strings.Repeat("ab", 20))
	raw := EncodeCommit(tree, []plumbing.Hash{parent}, "Ada <a@b>", time.Unix(1234, 0), "Subject\n\nBody\n\nConfig-Commit: x\nEpoch: 7\n")
	c, err := parseCommit(Hash(plumbing.CommitObject, raw), raw)
	require.NoError(t, err)
	require.Equal(t, tree, c.Tree)
	require.Equal(t, []plumbing.Hash{parent}, c.Parents)
	require.Equal(t, "Ada", c.Author)
	require.Equal(t, "a@b", c.Email)
	require.EqualValues(t, 1234, c.When)
	require.Equal(t, "Subject\n\nBody", c.Body())
	require.Equal(t, "7", c.Trailer("Epoch"))
	require.Empty(t, c.Trailer("Body"))
}

func TestOneLine(t *testing.T) {
	require.Equal(t, "a b Epoch: 99", OneLine("a\nb\r\n\nEpoch: 99\x00", 100))
	require.Equal(t, "äö…", OneLine("äöü", 5))
}

func TestPlainName(t *testing.T) {
	for _, bad := range []string{"", ".", "..", ".git", ".GIT", "a/b", `a\b`, "a\nb", "\xff"} {
		require.False(t, plainName(bad), bad)
	}
	require.True(t, plainName("train.yaml"))
}

func TestIdentityCannotForgeAHeader(t *testing.T) {
	require.Equal(t, "Berth <berth@localhost>", Identity("", ""))
	who := Identity("a\nparent x", "x> 1 +0000\ncommitter <y")
	raw := EncodeCommit(plumbing.NewHash(emptyTree), nil, who, time.Unix(1, 0), "m")
	require.Equal(t, 3, bytes.Count(raw[:bytes.Index(raw, []byte("\n\n"))+1], []byte("\n")))
}
