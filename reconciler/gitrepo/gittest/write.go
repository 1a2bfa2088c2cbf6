package gittest

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// objects opens the repository again for each use, because other processes write to it, too.
func (s *Server) objects() *filesystem.Storage {
	return filesystem.NewStorage(osfs.New(s.Dir, osfs.WithBoundOS()), cache.NewObjectLRUDefault())
}

// store adds an object without checking it.
func store(to *filesystem.Storage, kind plumbing.ObjectType, data []byte) (plumbing.Hash, error) {
	o := &plumbing.MemoryObject{}
	o.SetType(kind)
	if _, err := o.Write(data); err != nil {
		return plumbing.ZeroHash, err
	}
	return to.SetEncodedObject(o)
}

// writeCommit makes a commit in this process, as git takes two for one. It fails if the branch has left tip.
func (s *Server) writeCommit(branch, tip, parent, author string, when time.Time, c Commit) (string, error) {
	objects := s.objects()
	name, mail, _ := strings.Cut(strings.TrimSuffix(author, ">"), " <")
	who := object.Signature{Name: name, Email: mail, When: when.UTC()}
	commit := object.Commit{Author: who, Committer: who, Message: c.Message}
	for _, rev := range []string{parent, c.Merge} {
		if rev == "" {
			continue
		}
		id := s.Ref(rev)
		if id == "" {
			return "", fmt.Errorf("no commit %s", rev)
		}
		commit.ParentHashes = append(commit.ParentHashes, plumbing.NewHash(id))
	}
	root := plumbing.ZeroHash
	if parent != "" {
		of, err := object.GetCommit(objects, commit.ParentHashes[0])
		if err != nil {
			return "", err
		}
		root = of.TreeHash
	}
	change := map[string]*string{}
	for _, path := range c.Remove {
		change[path] = nil
	}
	for path, text := range c.Files {
		change[path] = &text
	}
	var err error
	if commit.TreeHash, _, err = changeTree(objects, root, change); err != nil {
		return "", err
	}
	id, err := encode(objects, commit.Encode)
	if err != nil {
		return "", err
	}
	return id.String(), s.moveRef(&packp.Command{Name: plumbing.NewBranchReferenceName(branch), Old: plumbing.NewHash(tip), New: id})
}

func encode(to *filesystem.Storage, encode func(plumbing.EncodedObject) error) (plumbing.Hash, error) {
	o := &plumbing.MemoryObject{}
	if err := encode(o); err != nil {
		return plumbing.ZeroHash, err
	}
	return to.SetEncodedObject(o)
}

// changeTree writes a tree with other content at some paths, and returns its number of entries. A nil content removes the path. An
// empty directory is removed.
func changeTree(objects *filesystem.Storage, id plumbing.Hash, change map[string]*string) (is plumbing.Hash, entries int, err error) {
	of := map[string]object.TreeEntry{}
	if !id.IsZero() {
		tree, err := object.GetTree(objects, id)
		if err != nil {
			return id, 0, err
		}
		for _, e := range tree.Entries {
			of[e.Name] = e
		}
	}
	below := map[string]map[string]*string{} // changes in directories
	for _, path := range slices.Sorted(maps.Keys(change)) {
		dir, rest, isBelow := strings.Cut(path, "/")
		switch text := change[path]; {
		case isBelow && below[dir] == nil:
			below[dir] = map[string]*string{rest: text}
		case isBelow:
			below[dir][rest] = text
		case text == nil:
			delete(of, path)
		default:
			blob, err := store(objects, plumbing.BlobObject, []byte(*text))
			if err != nil {
				return id, 0, err
			}
			of[path] = object.TreeEntry{Name: path, Mode: filemode.Regular, Hash: blob}
		}
	}
	for dir, change := range below {
		was, isThere := of[dir]
		if isThere && was.Mode != filemode.Dir {
			was.Hash = plumbing.ZeroHash
		}
		tree, left, err := changeTree(objects, was.Hash, change)
		switch {
		case err != nil:
			return id, 0, err
		case left > 0:
			of[dir] = object.TreeEntry{Name: dir, Mode: filemode.Dir, Hash: tree}
		case was.Mode == filemode.Dir:
			delete(of, dir)
		}
	}
	tree := object.Tree{Entries: slices.Collect(maps.Values(of))}
	sort.Sort(object.TreeEntrySorter(tree.Entries))
	is, err = encode(objects, tree.Encode)
	return is, len(of), err
}
