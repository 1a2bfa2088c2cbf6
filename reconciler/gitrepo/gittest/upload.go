package gittest

import (
	"bytes"
	"io"
	"net/http"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// upload answers a fetch as git upload-pack does, and returns true. It leaves to git a fetch of a shallow history of several
// commits, of objects that it cannot read, and by several rounds (multi_ack), as the program git makes it. Its pack may
// have objects that the client has.
func (s *Server) upload(w http.ResponseWriter, body []byte) bool {
	req, text := packp.NewUploadRequest(), bytes.NewReader(body)
	if req.Decode(text) != nil || !req.Capabilities.Supports(capability.Sideband64k) ||
		req.Capabilities.Supports(capability.MultiACK) || req.Capabilities.Supports(capability.MultiACKDetailed) {
		return false
	}
	isTipOnly := req.Depth == packp.DepthCommits(1)
	if !isTipOnly && !req.Depth.IsZero() {
		return false
	}
	objects := s.objects()
	pack := packOf{objects: objects, has: map[plumbing.Hash]bool{}, ends: map[plumbing.Hash]bool{}, ids: map[plumbing.Hash]bool{}}
	for _, id := range req.Shallows {
		pack.ends[id] = true
	}
	var update packp.ShallowUpdate
	if isTipOnly {
		for _, id := range req.Wants {
			if !pack.ends[id] {
				update.Shallows = append(update.Shallows, id)
			}
			pack.ends[id] = true
		}
	}
	var answer packp.ServerResponse
	for lines := pktline.NewScanner(text); lines.Scan(); {
		have, isHave := bytes.CutPrefix(bytes.TrimSpace(lines.Bytes()), []byte("have "))
		if id := plumbing.NewHash(string(have)); isHave && objects.HasEncodedObject(id) == nil {
			pack.has[id] = true
			answer.ACKs = []plumbing.Hash{id}
		}
	}
	for _, id := range req.Wants {
		if pack.addCommits(id) != nil {
			return false
		}
	}
	var data bytes.Buffer
	if pack.encode(&data) != nil {
		return false
	}
	w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
	if isTipOnly {
		_ = update.Encode(w) // the client may be gone
	}
	_ = answer.Encode(w, false)
	channel := sideband.NewMuxer(sideband.Sideband64k, w)
	for part := range slices.Chunk(data.Bytes(), 1<<15) { // a whole packet of go-git is longer than Git allows
		_, _ = channel.Write(part)
	}
	_ = pktline.NewEncoder(w).Flush()
	return true
}

// packOf collects the objects of a pack.
type packOf struct {
	objects *filesystem.Storage
	has     map[plumbing.Hash]bool // commits that the client has
	ends    map[plumbing.Hash]bool // commits at the boundary of its shallow history: their parents are not sent
	ids     map[plumbing.Hash]bool
}

// addCommits adds a commit and those before it that the client lacks.
func (p *packOf) addCommits(id plumbing.Hash) error {
	for next := []plumbing.Hash{id}; len(next) > 0; {
		id, next = next[0], next[1:]
		if p.has[id] || p.ids[id] {
			continue
		}
		c, err := object.GetCommit(p.objects, id)
		if err != nil {
			return err
		}
		p.ids[id] = true
		base := plumbing.ZeroHash
		if len(c.ParentHashes) > 0 && !p.ends[id] {
			parent, err := object.GetCommit(p.objects, c.ParentHashes[0])
			if err != nil {
				return err
			}
			base, next = parent.TreeHash, append(next, c.ParentHashes...)
		}
		if err := p.addTree(c.TreeHash, base); err != nil {
			return err
		}
	}
	return nil
}

// addTree adds what a tree has and another one has not at the same place.
func (p *packOf) addTree(id, base plumbing.Hash) error {
	if id == base { // a tree of p.ids is compared again: the pack may have only its difference to another tree
		return nil
	}
	p.ids[id] = true
	tree, err := object.GetTree(p.objects, id)
	if err != nil {
		return err
	}
	known := map[string]plumbing.Hash{}
	if was, err := object.GetTree(p.objects, base); err == nil { // else a file, or nothing
		for _, e := range was.Entries {
			known[e.Name] = e.Hash
		}
	}
	for _, e := range tree.Entries {
		switch e.Mode {
		case filemode.Dir:
			if err := p.addTree(e.Hash, known[e.Name]); err != nil {
				return err
			}
		case filemode.Submodule: // its commit is in another repository
		default:
			if e.Hash != known[e.Name] {
				p.ids[e.Hash] = true
			}
		}
	}
	return nil
}

func (p *packOf) encode(w io.Writer) error {
	ids := make([]plumbing.Hash, 0, len(p.ids))
	for id := range p.ids {
		ids = append(ids, id)
	}
	_, err := packfile.NewEncoder(w, p.objects, false).Encode(ids, 0)
	return err
}
