package gittest_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"
	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo/gittest"
)

// A fetch that is answered in process gives every object of the branches, at first and after each change; a shallow one
// gives those of the tips.
func TestFetchInProcessHasEachObject(t *testing.T) {
	for _, depth := range []int{0, 1} {
		t.Run(fmt.Sprintf("depth %d", depth), func(t *testing.T) {
			s := gittest.New(t, map[string]string{"a": "1", "d/b": "1", "d/e/f": "1"}, gittest.InProcess)
			client := newClient(t, s)
			fetchAll(t, client, depth)
			first := s.Tip("main")
			for _, change := range []func(){
				func() {
					s.MustCommit(t, "main", gittest.Commit{Message: "Change", Files: map[string]string{"d/e/f": "2", "g/h": "1"}})
				},
				func() { // files back as they were two commits ago
					s.MustCommit(t, "main", gittest.Commit{Message: "Back", Files: map[string]string{"d/e/f": "1"}, Remove: []string{"g/h"}})
				},
				func() { // and forth, and back, in one fetch
					for _, text := range []string{"2", "1", "2", "1"} {
						s.MustCommit(t, "main", gittest.Commit{Message: "Turn", Files: map[string]string{"d/e/f": text, "d/e/g": "new"}})
					}
				},
				func() { // more than one packet of the protocol
					s.MustCommit(t, "main", gittest.Commit{Message: "Long", Files: map[string]string{"long": string(random(t))}})
				},
				func() { // a directory in place of a file
					s.MustCommit(t, "main", gittest.Commit{Message: "Other kind", Files: map[string]string{"a/x": "1"}, Remove: []string{"a"}})
				},
				func() {
					topic := s.MustCommit(t, "topic", gittest.Commit{Message: "Topic", Parent: first, Files: map[string]string{"t": "1"}})
					s.MustCommit(t, "main", gittest.Commit{Message: "Merge", Merge: topic, Files: map[string]string{"t": "1"}})
				},
				func() { // a rewritten branch
					s.MustCommit(t, "main", gittest.Commit{Message: "Other", Parent: first, Files: map[string]string{"z": "1"}})
				},
			} {
				change()
				for _, client := range []*gogit.Repository{client, newClient(t, s)} {
					withoutGit(t, s, func() { fetchAll(t, client, depth) })
					requireObjects(t, client, s.Tip("main"), depth)
				}
			}
		})
	}
}

// withoutGit does something while no git can answer a request.
func withoutGit(t *testing.T, s *gittest.Server, do func()) {
	t.Helper()
	file := filepath.Join(s.Dir, "config")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("[broken"), 0o644))
	do()
	require.NoError(t, os.WriteFile(file, text, 0o644))
}

// random returns bytes that do not compress.
func random(t *testing.T) []byte {
	t.Helper()
	out := make([]byte, 200_000)
	_, err := rand.Read(out)
	require.NoError(t, err)
	return out
}

func newClient(t *testing.T, of *gittest.Server) *gogit.Repository {
	t.Helper()
	client, err := gogit.Init(memory.NewStorage(), nil)
	require.NoError(t, err)
	_, err = client.CreateRemote(&config.RemoteConfig{Name: "origin", URLs: []string{of.URL}})
	require.NoError(t, err)
	return client
}

func fetchAll(t *testing.T, client *gogit.Repository, depth int) {
	t.Helper()
	require.NoError(t, client.Fetch(&gogit.FetchOptions{RefSpecs: []config.RefSpec{"+refs/heads/*:refs/heads/*"}, Force: true,
		Tags: gogit.NoTags, Depth: depth}))
}

// requireObjects reads each file of a commit, and of those before it unless the history is shallow.
func requireObjects(t *testing.T, client *gogit.Repository, id string, depth int) {
	t.Helper()
	read := func(c *object.Commit) error {
		files, err := c.Files()
		require.NoError(t, err)
		return files.ForEach(func(f *object.File) error {
			_, err := f.Contents()
			return err
		})
	}
	tip, err := client.CommitObject(plumbing.NewHash(id))
	require.NoError(t, err)
	require.NoError(t, read(tip))
	if depth == 0 {
		require.NoError(t, object.NewCommitPreorderIter(tip, nil, nil).ForEach(read))
	}
}
