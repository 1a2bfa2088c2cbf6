package gitrepo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/schema"
)

func FuzzParseTree(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("100644 a\x00" + strings.Repeat("x", 20) + "40000 b\x00" + strings.Repeat("y", 20)))
	f.Add([]byte("100644 a\x00short"))
	f.Add([]byte(" a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := parseTree(b)
		if err != nil {
			require.ErrorIs(t, err, reconciler.ErrUnreadable)
			return
		}
		again, err := parseTree(encodeTree(entries))
		require.NoError(t, err)
		require.Len(t, again, len(entries))
		names := map[string]string{}
		for _, e := range again {
			p := pathName(e.name)
			require.NotContains(t, p, "/")
			require.NotEmpty(t, p)
			if other, ok := names[p]; ok {
				require.Equal(t, other, e.name, "distinct names have distinct paths")
			}
			names[p] = e.name
		}
	})
}

func FuzzParseCommit(f *testing.F) {
	tree := plumbing.NewHash(emptyTree)
	f.Add(encodeCommit(tree, []plumbing.Hash{tree}, "A <a@b>", time.Unix(12, 0), "subject\n\nbody\n\nEpoch: 1"))
	f.Add([]byte("tree " + emptyTree + "\nauthor <>< 9x\n\n"))
	f.Add([]byte("parent x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseCommit(tree, b)
		if err != nil {
			return
		}
		require.False(t, c.tree.IsZero())
		_, _, _ = c.public(), c.body(), c.trailer("Epoch")
	})
}

func FuzzDecodeStatus(f *testing.F) {
	f.Add([]byte("apiVersion: berth/v1\nkind: InstanceStatus\nkey: {kind: Instance, tenant: a, project: b, name: c}\n"))
	f.Add([]byte("? !!binary x\n: - &a [*a]"))
	f.Add([]byte("apiVersion: berth/v1\nkind: NodeStatus\nkey: {kind: Node, name: n}\nphase: ready\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		unit := decodeStatus("x.yaml", schema.InstanceKey("a", "b", "c"), b)
		require.Nil(t, unit.thing)
		require.Equal(t, unit.status == nil, unit.warning != "")
		if unit.status != nil {
			require.Equal(t, unit.key, unit.status.Key)
		}
		thing := decodeStatus("x.yaml", schema.Key{Kind: schema.KindNode, Name: "n"}, b)
		require.Nil(t, thing.status)
		require.Equal(t, thing.thing == nil, thing.warning != "")
		if thing.thing != nil {
			require.Equal(t, thing.key, thing.thing.Key)
		}
	})
}

func TestCommitRoundTrip(t *testing.T) {
	tree, parent := plumbing.NewHash(emptyTree), plumbing.NewHash(strings.Repeat("ab", 20))
	raw := encodeCommit(tree, []plumbing.Hash{parent}, "Ada <a@b>", time.Unix(1234, 0), "Subject\n\nBody\n\nConfig-Commit: x\nEpoch: 7\n")
	c, err := parseCommit(hashObject(plumbing.CommitObject, raw), raw)
	require.NoError(t, err)
	require.Equal(t, tree, c.tree)
	require.Equal(t, []plumbing.Hash{parent}, c.parents)
	require.Equal(t, "Ada", c.author)
	require.Equal(t, "a@b", c.email)
	require.EqualValues(t, 1234, c.when)
	require.Equal(t, "Subject\n\nBody", c.body())
	require.Equal(t, "7", c.trailer("Epoch"))
	require.Empty(t, c.trailer("Body"))
}

func TestOneLine(t *testing.T) {
	require.Equal(t, "a b Epoch: 99", oneLine("a\nb\r\n\nEpoch: 99\x00", 100))
	require.Equal(t, "äö…", oneLine("äöü", 5))
}

func TestPlainName(t *testing.T) {
	for _, bad := range []string{"", ".", "..", ".git", ".GIT", "a/b", `a\b`, "a\nb", "\xff"} {
		require.False(t, plainName(bad), bad)
	}
	require.True(t, plainName("train.yaml"))
}

func TestIdentityCannotForgeAHeader(t *testing.T) {
	require.Equal(t, "Berth <berth@localhost>", identity(Options{}))
	who := identity(Options{AuthorName: "a\nparent x", AuthorEmail: "x> 1 +0000\ncommitter <y"})
	raw := encodeCommit(plumbing.NewHash(emptyTree), nil, who, time.Unix(1, 0), "m")
	require.Equal(t, 3, bytes.Count(raw[:bytes.Index(raw, []byte("\n\n"))+1], []byte("\n")))
}

func TestCodeSpanCannotBeLeft(t *testing.T) {
	require.Equal(t, "`a'<b>¦ c`", code("a`<b>|\nc"))
}
