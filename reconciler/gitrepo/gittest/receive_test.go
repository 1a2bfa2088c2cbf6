package gittest_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo/gittest"
)

// push is a push of one ref, and what both receivers say of it.
type push struct {
	name     string
	ref      string
	old, new func(s *gittest.Server) string
	pack     []byte
	hook     string
	taken    bool
	unpacked bool
}

// A push that is received in process has the outcome that git gives it.
func TestPushInProcessHasTheOutcomeOfGit(t *testing.T) {
	files := map[string]string{"a": "1"}
	from := gittest.New(t, files)
	commit := from.MustCommit(t, "main", gittest.Commit{Message: "Next", Files: map[string]string{"a": "2"}})
	file := filepath.Join(t.TempDir(), "pack")
	id, err := from.GitInput(strings.NewReader(commit+"\n"), "pack-objects", "--revs", "-q", file)
	require.NoError(t, err)
	pack, err := os.ReadFile(file + "-" + id + ".pack")
	require.NoError(t, err)
	is := func(id string) func(*gittest.Server) string { return func(*gittest.Server) string { return id } }
	tip := func(s *gittest.Server) string { return s.Tip("main") }
	nothing := is(plumbing.ZeroHash.String())
	other := is(strings.Repeat("1", 40))
	const main, topic = "refs/heads/main", "refs/heads/berth/topic"
	for _, p := range []push{
		{name: "new branch", ref: topic, old: nothing, new: is(commit), pack: pack, taken: true, unpacked: true},
		{name: "moved branch", ref: main, old: tip, new: is(commit), pack: pack, taken: true, unpacked: true},
		{name: "branch that is elsewhere", ref: main, old: is(commit), new: is(commit), pack: pack, unpacked: true},
		{name: "branch that exists", ref: main, old: nothing, new: is(commit), pack: pack, unpacked: true},
		{name: "branch that does not exist", ref: topic, old: tip, new: is(commit), pack: pack, unpacked: true},
		{name: "commit that is not in the pack", ref: main, old: tip, new: other, pack: pack, unpacked: true},
		{name: "pack cut short", ref: main, old: tip, new: is(commit), pack: pack[:len(pack)-30]},
		{name: "pack with a wrong byte", ref: main, old: tip, new: is(commit), pack: flipped(pack)},
		{name: "hook that refuses", ref: main, old: tip, new: is(commit), pack: pack, hook: "#!/bin/sh\nexit 1\n", unpacked: true},
	} {
		t.Run(p.name, func(t *testing.T) {
			for _, s := range []*gittest.Server{gittest.New(t, files), gittest.New(t, files, gittest.InProcess)} {
				before := s.Ref(p.ref)
				report := p.to(t, s)
				require.Equal(t, p.unpacked, report.UnpackStatus == "ok", report.UnpackStatus)
				require.Len(t, report.CommandStatuses, 1)
				require.Equal(t, p.taken, report.CommandStatuses[0].Status == "ok", report.CommandStatuses[0].Status)
				want := before
				if p.taken {
					want = commit
				}
				require.Equal(t, want, s.Ref(p.ref))
				require.NoError(t, s.Fsck())
			}
		})
	}
}

func (p push) to(t *testing.T, s *gittest.Server) *packp.ReportStatus {
	t.Helper()
	if p.hook != "" {
		hooks := filepath.Join(s.Dir, "hooks")
		require.NoError(t, os.MkdirAll(hooks, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(hooks, "pre-receive"), []byte(p.hook), 0o755))
	}
	req := packp.NewReferenceUpdateRequest()
	require.NoError(t, req.Capabilities.Set(capability.ReportStatus))
	req.Commands = []*packp.Command{{Name: plumbing.ReferenceName(p.ref), Old: plumbing.NewHash(p.old(s)), New: plumbing.NewHash(p.new(s))}}
	req.Packfile = io.NopCloser(bytes.NewReader(p.pack))
	var body bytes.Buffer
	require.NoError(t, req.Encode(&body))
	answer, err := http.Post(s.URL+"/git-receive-pack", "application/x-git-receive-pack-request", &body)
	require.NoError(t, err)
	defer answer.Body.Close()
	report := packp.NewReportStatus()
	require.NoError(t, report.Decode(answer.Body))
	return report
}

// flipped returns a pack with another byte in an object.
func flipped(pack []byte) []byte {
	out := bytes.Clone(pack)
	out[len(out)/2] ^= 0xff
	return out
}
