package gitrepo_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/signature"

	"github.com/hiddeco/sshsig"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"pgregory.net/rapid"
)

// putCommit stores the bytes of a commit at the remote and points main at it.
func putCommit(t *testing.T, s *gittest.Server, raw string) string {
	t.Helper()
	id, err := s.GitInput(strings.NewReader(raw), "hash-object", "-t", "commit", "-w", "--literally", "--stdin")
	require.NoError(t, err)
	require.NoError(t, s.SetRef("refs/heads/main", id))
	return id
}

// headersOn returns the headers of an empty commit on top of another.
func headersOn(t *testing.T, s *gittest.Server, parent string) string {
	t.Helper()
	tree, err := s.Git("rev-parse", parent+"^{tree}")
	require.NoError(t, err)
	return fmt.Sprintf("tree %s\nparent %s\nauthor Ann A <ann@example.org> 1767225600 +0100\ncommitter Carl C <carl@example.org> "+
		"1767229200 -0500\n", tree, parent)
}

// A signed commit proves the same signer after all files of the daemon are lost.
// A changed byte invalidates the proof.
func TestEvidenceIsReproducible(t *testing.T) {
	t.Parallel()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	key, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))

	s := gittest.New(t, estateFiles())
	first := s.Tip("main")
	headers, message := headersOn(t, s, first), "Stop it all\n\nText\n\nBreak-Glass: the cluster\n  burns\nBerth-Ack-Delete: abc\n"
	sig, err := sshsig.Sign(strings.NewReader(headers+"\n"+message), key, sshsig.HashSHA512, "git")
	require.NoError(t, err)
	folded := strings.ReplaceAll(strings.TrimSuffix(string(sshsig.Armor(sig)), "\n"), "\n", "\n ")
	signed := putCommit(t, s, headers+"gpgsig "+folded+"\n\n"+message)

	dir := t.TempDir()
	for range 2 {
		r := open(t, s, func(o *gitrepo.Options) { o.Dir = dir })
		require.Equal(t, signed, fetch(t, r).Main)
		e, err := r.Evidence(t.Context(), signed)
		require.NoError(t, err)
		require.Equal(t, reconciler.Evidence{
			Commit: signed, Author: "Ann A", AuthorEmail: "ann@example.org", Committer: "Carl C", CommitterEmail: "carl@example.org",
			When: time.Unix(1767229200, 0).UTC(), Subject: "Stop it all", Parents: []string{first},
			Payload: []byte(headers + "\n" + message), Signature: sshsig.Armor(sig),
			Trailers: []reconciler.Trailer{{Key: "Break-Glass", Value: "the cluster burns"}, {Key: "Berth-Ack-Delete", Value: "abc"}},
		}, e)

		ring := signature.Keys(authority.Rules{Base: &schema.Desired{Platform: &schema.Platform{Roles: map[string]*schema.RoleBinding{
			"people": {Spec: schema.RoleBindingSpec{Members: []schema.RoleMember{{Login: "ann", SigningKeys: []string{line}}}}},
		}}}})
		who, err := ring.Signer(e.Payload, e.Signature, time.Now())
		require.NoError(t, err)
		actor, err := who.Actor(authority.Scope{})
		require.NoError(t, err)
		require.Equal(t, "ann", actor.Login)
		_, err = ring.Signer(bytes.Replace(e.Payload, []byte("abc"), []byte("abd"), 1), e.Signature, time.Now())
		require.Error(t, err)

		plain, err := r.Evidence(t.Context(), first)
		require.NoError(t, err)
		require.Nil(t, plain.Payload)
		require.Empty(t, plain.Signature)
		require.Empty(t, plain.Fault)
		require.NoError(t, r.Close())
		require.NoError(t, os.RemoveAll(dir))
	}
}

// A commit without valid evidence is reported without evidence and blocks
// nothing.
func TestMissingEvidenceIsNotAnError(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	first := s.Tip("main")
	headers := headersOn(t, s, first)
	two := putCommit(t, s, headers+"gpgsig a\n b\ngpgsig c\n\nTwo\n")
	large := putCommit(t, s, headersOn(t, s, two)+"gpgsig a\n\nLarge\n\n"+strings.Repeat("A: b\n", 1<<18))
	bytes := putCommit(t, s, headersOn(t, s, large)+"\n\xff\xfe\n\nBreak-Glass: \x80\x00\n")
	fork := s.MustCommit(t, "fork", gittest.Commit{Parent: first, Message: "Fork", Files: map[string]string{"x": "y"}})
	require.NoError(t, s.SetPull(1, fork))
	require.NoError(t, s.SetRef("refs/heads/fork", ""))

	r := open(t, s)
	require.Equal(t, bytes, fetch(t, r).Main)
	for id, fault := range map[string]string{two: "two signatures", large: "larger than", bytes: ""} {
		e, err := r.Evidence(t.Context(), id)
		require.NoError(t, err)
		require.Nil(t, e.Payload)
		require.Nil(t, e.Signature)
		require.Contains(t, e.Fault, fault)
		require.Equal(t, fault == "", e.Fault == "")
		require.Len(t, e.Trailers, map[bool]int{true: 1}[id == bytes])
	}
	// A pull request head is stored for merging. It is not evidence of a branch.
	got, err := r.FetchPull(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, fork, got)
	_, err = r.Evidence(t.Context(), fork)
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	tree, err := s.Git("rev-parse", "main^{tree}")
	require.NoError(t, err)
	for _, id := range []string{tree, strings.Repeat("a", 40)} {
		_, err = r.Evidence(t.Context(), id)
		require.ErrorIs(t, err, reconciler.ErrNotFound, id)
	}
	_, err = r.Evidence(t.Context(), "main")
	require.Error(t, err)
}

// An in-force commit alone records every file held for lack of authority, for any
// name and number of files.
func TestReadInForce(t *testing.T) {
	t.Parallel()
	readInForce(t)
}

func readInForce(t *testing.T) {
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	main := fetch(t, r).Main
	tip, epoch := "", uint64(0)
	write := func(t require.TestingT, w reconciler.InForce) {
		var err error
		epoch++
		w.Commit, w.CorrelationID, w.Epoch = main, fmt.Sprintf("c-%d", epoch), epoch
		before := tip
		tip, err = r.WriteInForce(context.Background(), tip, w)
		require.NoError(t, err)
		want := map[string]bool{}
		for _, h := range w.Held {
			if h.Reason == schema.HeldUnauthorised {
				want[h.File] = true
			}
		}
		got, err := r.ReadInForce(context.Background(), tip)
		require.NoError(t, err)
		files := map[string]bool{}
		for _, h := range got.Held {
			require.Equal(t, schema.HeldUnauthorised, h.Reason)
			require.False(t, files[h.File], "each once")
			files[h.File] = true
		}
		require.Equal(t, want, files)
		require.Equal(t, main, got.Commit)
		if tip != before {
			require.Equal(t, epoch, got.Epoch)
			require.Equal(t, w.CorrelationID, got.CorrelationID)
		}
	}
	name := rapid.OneOf(
		rapid.SampledFrom([]string{"", "a\nUnauthorised: \"b\"", "a\n\nConfig-Commit: c", `"`, `\`, "\x00\xff\r\t", "\u2028", " a ",
			"Epoch: 9"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) }),
	)
	held := rapid.Custom(func(t *rapid.T) schema.Held {
		return schema.Held{
			File: name.Draw(t, "file"),
			Reason: rapid.SampledFrom([]schema.HeldReason{schema.HeldUnauthorised, schema.HeldUnauthorised, schema.HeldInvalid}).Draw(t,
				"reason"),
			Message: name.Draw(t, "message"),
		}
	})
	many := make([]schema.Held, 1000)
	for i := range many {
		many[i] = schema.Held{File: fmt.Sprintf("tenants/t/projects/p/instances/i-%d.yaml", i), Reason: schema.HeldUnauthorised}
	}
	write(t, reconciler.InForce{Held: many})
	was := tip
	write(t, reconciler.InForce{Held: many})
	require.Equal(t, was, tip, "an unchanged estate needs no commit")
	// One file more than the message lists.
	write(t, reconciler.InForce{Held: append(many[:999:999], schema.Held{File: many[999].File + "x", Reason: schema.HeldUnauthorised})})
	require.NotEqual(t, was, tip)
	write(t, reconciler.InForce{})
	rapid.Check(t, func(t *rapid.T) {
		write(t, reconciler.InForce{Held: rapid.SliceOfN(held, 0, 4).Draw(t, "held")})
	})

	// A new mirror reads the same.
	want, err := r.ReadInForce(context.Background(), tip)
	require.NoError(t, err)
	fresh := open(t, s)
	require.Equal(t, tip, fetch(t, fresh).InForce)
	got, err := fresh.ReadInForce(context.Background(), tip)
	require.NoError(t, err)
	require.Equal(t, want, got)

	// A commit of an older version, which recorded moves, is readable.
	old := s.MustCommit(t, reconciler.BranchInForce,
		gittest.Commit{Message: "x\n\nMoved: \"a\" \"b\"\nConfig-Commit: " + main + "\nEpoch: 1", Merge: main})

	// Commits that Berth cannot have written.
	local, err := gitrepo.OpenLocal(s.Dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, local.Close()) })
	read, err := local.ReadInForce(t.Context(), old)
	require.NoError(t, err)
	require.Equal(t, main, read.Commit)
	for _, message := range []string{
		"x", "x\n\nConfig-Commit: " + main, "x\n\nConfig-Commit: " + main + "\nEpoch: x", "x\n\nConfig-Commit: " + was + "\nEpoch: 1",
		"x\n\nUnauthorised: open\nConfig-Commit: " + main + "\nEpoch: 1",
	} {
		forged := s.MustCommit(t, reconciler.BranchInForce, gittest.Commit{Message: message, Merge: main})
		_, err := local.ReadInForce(t.Context(), forged)
		require.ErrorIs(t, err, reconciler.ErrRewritten, message)
	}
}
