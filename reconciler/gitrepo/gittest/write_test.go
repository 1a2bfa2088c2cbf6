package gittest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A commit that is made in process is the commit that git makes of the same change.
func TestCommitInProcessIsThatOfGit(t *testing.T) {
	when := time.Unix(1700000000, 0)
	ours, gits := New(t, nil), New(t, nil)
	for _, c := range []Commit{
		{Message: "first", Files: map[string]string{"a": "1", "b/c": "2", "b/d/e": "3", "b.txt": "4", "odd\n\"name": "5"}},
		{Message: "change\n\nand body\n", Files: map[string]string{"b/c": "6", "new/x/y": ""}},
		{Message: "remove a file and a directory", Remove: []string{"a", "b/d", "nothing", "b.txt/below"}},
		{Message: "a directory in place of a file", Remove: []string{"b.txt"}, Files: map[string]string{"b.txt/x": "7"}},
		{Message: "a file in place of a directory", Files: map[string]string{"new": "8"}},
		{Message: "the last file of a directory", Remove: []string{"b.txt/x", "b/c"}},
		{Message: "another author", Author: "Bo B. <bo@example.org>"},
		{Message: "again from the first", Parent: "refs/heads/main~6", Files: map[string]string{"z": "9"}},
		{Message: "merge", Merge: "refs/heads/main"},
	} {
		author := c.Author
		if author == "" {
			author = "Ada <ada@example.org>"
		}
		parent := c.Parent
		if parent == "" {
			parent = ours.Tip("main")
		}
		ourCommit, err := ours.writeCommit("main", ours.Tip("main"), parent, author, when, c)
		require.NoError(t, err, c.Message)
		gitsCommit, err := gits.importCommit("main", parent, author, when, c)
		require.NoError(t, err, c.Message)
		require.Equal(t, gitsCommit, ourCommit, c.Message)
		require.NoError(t, ours.Fsck(), c.Message)
	}
}
