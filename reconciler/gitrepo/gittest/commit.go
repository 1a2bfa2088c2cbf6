package gittest

import (
	"archive/tar"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// Commit describes one commit to create on a branch of the Server.
type Commit struct {
	Message string            // required
	Author  string            // "Name <mail>"; empty: a fixed one
	Files   map[string]string // path → content of plain files
	Remove  []string          // paths, files or directories
	Merge   string            // a second parent
	When    time.Time         // zero: now
	// Parent replaces the branch's tip as the parent. The branch moves to the new
	// commit even if that is not a fast-forward.
	Parent string
}

// Commit creates c on branch and returns the new commit. A missing branch starts
// at the tip of main, or without a parent if main is missing.
func (s *Server) Commit(branch string, c Commit) (string, error) {
	if c.Message == "" {
		return "", errors.New("a commit needs a message")
	}
	tip, parent := s.Tip(branch), c.Parent
	if parent == "" {
		parent = tip
	}
	if parent == "" {
		parent = s.Tip("main")
	}
	author := c.Author
	if author == "" {
		author = "Ada <ada@example.org>"
	}
	when := c.When
	if when.IsZero() {
		when = time.Now()
	}
	if len(c.Files) > looseFiles {
		return s.importCommit(branch, parent, author, when, c)
	}
	return s.writeCommit(branch, tip, parent, author, when, c)
}

// looseFiles is the number of files of a commit up to which each object gets a file: git keeps a pack with more objects
// (fastimport.unpackLimit in git-config(1)).
const looseFiles = 100

// importCommit makes a commit by git fast-import.
func (s *Server) importCommit(branch, parent, author string, when time.Time, c Commit) (string, error) {
	// fast-import takes a path as a C-style string in double quotes.
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace
	var in bytes.Buffer
	who := fmt.Sprintf("%s %d +0000", author, when.Unix())
	fmt.Fprintf(&in, "feature done\ncommit refs/heads/%s\nauthor %s\ncommitter %s\ndata %d\n%s\n", branch, who, who, len(c.Message),
		c.Message)
	if parent != "" {
		fmt.Fprintf(&in, "from %s\n", parent)
	}
	if c.Merge != "" {
		fmt.Fprintf(&in, "merge %s\n", c.Merge)
	}
	for _, p := range c.Remove {
		fmt.Fprintf(&in, "D \"%s\"\n", quote(p))
	}
	for _, p := range slices.Sorted(maps.Keys(c.Files)) {
		fmt.Fprintf(&in, "M 100644 inline \"%s\"\ndata %d\n%s\n", quote(p), len(c.Files[p]), c.Files[p])
	}
	in.WriteString("done\n")
	args := []string{"fast-import", "--quiet", "--date-format=raw"}
	if c.Parent != "" {
		args = append(args, "--force")
	}
	if _, err := s.GitInput(&in, args...); err != nil {
		return "", err
	}
	return s.Tip(branch), nil
}

// TreeEntry is one line of a tree.
type TreeEntry struct {
	Mode, Name, ID string // such as 100644, a name, and the object id in hex
}

// Tree lists the entries of a revision's root tree.
func (s *Server) Tree(rev string) ([]TreeEntry, error) {
	out, err := s.Git("ls-tree", "-z", "--end-of-options", rev)
	if err != nil {
		return nil, err
	}
	var entries []TreeEntry
	for line := range strings.SplitSeq(out, "\x00") {
		if line == "" {
			continue
		}
		facts, name, _ := strings.Cut(line, "\t")
		fields := strings.Fields(facts)
		if len(fields) != 3 {
			return nil, fmt.Errorf("git ls-tree %s: cannot read %q", rev, line)
		}
		entries = append(entries, TreeEntry{Mode: strings.TrimLeft(fields[0], "0"), Name: name, ID: fields[2]})
	}
	return entries, nil
}

// WriteTree stores a tree with these entries in this order and returns its id.
// The tree may be invalid.
func (s *Server) WriteTree(entries ...TreeEntry) (string, error) {
	var b bytes.Buffer
	for _, e := range entries {
		id, err := hex.DecodeString(e.ID)
		if err != nil {
			return "", fmt.Errorf("entry %q: %w", e.Name, err)
		}
		fmt.Fprintf(&b, "%s %s\x00%s", e.Mode, e.Name, id)
	}
	id, err := store(s.objects(), plumbing.TreeObject, b.Bytes())
	return id.String(), err
}

// CommitTree commits a tree to a branch without checking it.
func (s *Server) CommitTree(branch, message, tree string) (string, error) {
	id, err := s.Git("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit-tree", "-p", s.Tip(branch), "-m", message, tree)
	if err != nil {
		return "", err
	}
	return id, s.SetRef("refs/heads/"+branch, id)
}

// MustCommit is Commit for tests; an error fails the test.
func (s *Server) MustCommit(t TB, branch string, c Commit) string {
	t.Helper()
	id, err := s.Commit(branch, c)
	if err != nil {
		t.Fatalf("commit on %s: %v", branch, err)
	}
	return id
}

// Tip returns the commit of a branch, or "" if the branch does not exist.
func (s *Server) Tip(branch string) string {
	return s.Ref("refs/heads/" + branch)
}

// Ref returns the commit of a full ref name, or of a revision such as refs/heads/main~1. It is
// empty if the ref does not exist.
func (s *Server) Ref(name string) string {
	if strings.HasPrefix(name, "refs/") && !strings.ContainsAny(name, "~^@:") {
		// Tests ask often, and a process takes long. Each ref has a file, as nothing packs refs here.
		text, err := os.ReadFile(filepath.Join(s.Dir, name))
		if os.IsNotExist(err) {
			return ""
		}
		if err == nil && len(text) == 41 {
			return strings.TrimSpace(string(text))
		}
	}
	if plumbing.IsHash(name) {
		if _, err := s.objects().EncodedObject(plumbing.CommitObject, plumbing.NewHash(name)); err == nil {
			return name
		}
	}
	out, err := s.Git("rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil {
		return ""
	}
	return out
}

// SetRef points a full ref name at a commit; "" removes it.
func (s *Server) SetRef(name, commit string) error {
	args := []string{"update-ref", name, commit}
	if commit == "" {
		args = []string{"update-ref", "-d", name}
	}
	_, err := s.Git(args...)
	return err
}

// PullRef is the ref of the head of a pull request on a Server.
func PullRef(number int) string { return fmt.Sprintf("refs/pull/%d/head", number) }

// GroupRefs begin the refs of the groups of a merge queue on a Server.
func GroupRefs(branch string) string { return "refs/heads/queue/" + branch + "/" }

// SetPull sets the head of pull request number.
func (s *Server) SetPull(number int, commit string) error { return s.SetRef(PullRef(number), commit) }

// Merge merges head into branch with a merge commit, like the merge button of a
// forge.
func (s *Server) Merge(branch, head, message string) (string, error) {
	base := s.Tip(branch)
	tree, err := s.Git("merge-tree", "--write-tree", base, head)
	if err != nil {
		return "", fmt.Errorf("merge %s into %s: %w", head, branch, err)
	}
	id, err := s.Git("-c", "user.name=Forge", "-c", "user.email=forge@example.org", "commit-tree", "-p", base, "-p", head, "-m", message,
		tree)
	if err != nil {
		return "", err
	}
	return id, s.SetRef("refs/heads/"+branch, id)
}

// Files returns the plain files of a revision by path. A branch name is resolved
// once, so a concurrent push does not mix two commits.
func (s *Server) Files(rev string) (map[string]string, error) {
	id, err := s.Git("rev-parse", "--verify", "--quiet", "--end-of-options", rev)
	if err != nil {
		return nil, err
	}
	rev = strings.TrimSpace(id)
	out, err := s.run(nil, "archive", "--format=tar", "--end-of-options", rev)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files[h.Name] = string(text)
	}
}

// Read returns the content of one file of a revision.
func (s *Server) Read(rev, path string) (string, error) {
	out, err := s.run(nil, "cat-file", "blob", "--end-of-options", rev+":"+path)
	return string(out), err
}

// Fsck checks every object of the repository.
func (s *Server) Fsck() error {
	_, err := s.Git("fsck", "--strict", "--no-dangling")
	return err
}
