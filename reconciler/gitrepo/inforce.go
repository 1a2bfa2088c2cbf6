package gitrepo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

// inForce is the branch berth/in-force: it checks the tips of the branch, and
// writes commits. The holder of the turn may use it.
type inForce struct {
	history *history
	options Options
	remote  *remote
	turn    turn
	source  string // branch that in-force is made from

	verified plumbing.Hash // verified tip
	moves    moves
}

// Trailers of commits on berth/in-force.
const (
	// trailerUnauthorised names a file held for lack of authority, as a quoted Go
	// string, because a path may contain any byte.
	trailerUnauthorised = "Unauthorised"
	// trailerPermitted names a held file that is nevertheless permitted, with
	// main's blob. Any other difference from main was not authorized by a user.
	trailerPermitted = "Permitted"
)

const (
	maxHeldLines = 200 // held documents in a message
)

// WriteInForce makes a commit on berth/in-force. Its tree is the tree of w.Commit
// with w.Replace applied. A tree id in w.Replace replaces a whole directory, such
// as an unreadable part of w.Commit. The parents are the previous tip and the
// commit of main, so the remote keeps main's commit and its files. If neither the
// tree nor the held changes differ, WriteInForce returns old and makes no commit.
//
// The error is reconciler.ErrConflict if another process moved the branch from old.
func (f *inForce) WriteInForce(ctx context.Context, old string, w reconciler.InForce) (string, error) {
	release, err := f.turn.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	tip, err := f.write(ctx, old, w)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", reconciler.BranchInForce, err)
	}
	return tip, nil
}

func (f *inForce) write(ctx context.Context, old string, w reconciler.InForce) (string, error) {
	before, err := object.ParseOptionalID(old)
	if err != nil {
		return "", err
	}
	id, err := object.ParseID(w.Commit)
	if err != nil {
		return "", err
	}
	var set object.Batch
	tree, err := f.tree(id, w.Replace, &set)
	if err != nil {
		return "", err
	}
	body, trailers := inForceBody(w), inForceTrailers(w)
	parents := []plumbing.Hash{id}
	if !before.IsZero() {
		last, err := f.history.Commit(before)
		if err != nil {
			return "", err
		}
		if last.Tree == tree && last.Body() == body && slices.Equal(last.TrailerLines(trailerPermitted, trailerUnauthorised), trailers) {
			return old, nil
		}
		parents = []plumbing.Hash{before, id}
	}
	var correlation []string
	if w.CorrelationID != "" {
		correlation = []string{w.CorrelationID}
	}
	lines := append(trailers, object.Trailers(w.Commit, correlation, w.Epoch))
	raw, err := f.options.Sign(object.EncodeCommit(tree, parents, object.Berth, f.options.Now(), body+"\n\n"+strings.Join(lines, "\n")))
	if err != nil {
		return "", err
	}
	tip := set.Add(plumbing.CommitObject, raw)
	f.moves.try(tip)
	if err := publish(ctx, f.history.Reader, f.remote, reconciler.BranchInForce, before, tip, &set); err != nil {
		return "", err
	}
	f.verified = tip
	f.moves.pushed(tip)
	return tip.String(), nil
}

// tree returns the tree of main's commit with replacements, by path: the id of a
// blob or tree, or "" to remove the path.
func (f *inForce) tree(main plumbing.Hash, replace map[string]string, set *object.Batch) (plumbing.Hash, error) {
	c, err := f.history.Commit(main)
	if err != nil {
		return main, err
	}
	var over object.Overlay
	for path, id := range replace {
		if id == "" {
			over.Remove(path)
			continue
		}
		h, err := object.ParseID(id)
		if err != nil {
			return main, fmt.Errorf("%s: %w", path, err)
		}
		kind, _, _, err := f.history.Read(h, 0)
		switch {
		case err != nil:
			f.history.Damaged("read what was in force", err)
			return main, fmt.Errorf("%s: the version in force: %w", path, err)
		case kind == plumbing.BlobObject:
			over.File(path, h)
		case kind == plumbing.TreeObject:
			over.Directory(path, h)
		default:
			return main, fmt.Errorf("%s: the version in force: %s is a %s", path, h, kind)
		}
	}
	tree, err := f.history.ApplyOverlay(c.Tree, &over, set)
	if err == nil && tree.IsZero() {
		tree = set.Add(plumbing.TreeObject, nil)
	}
	return tree, err
}

// inForceTrailers returns the trailer lines of the permitted and the unauthorized
// files. All files are listed, however many there are. The commit must record the
// unauthorized ones: unlike other reasons, a missing permission cannot be derived
// from main's tree later.
func inForceTrailers(w reconciler.InForce) []string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(w.Permitted)) { // main's blob, or a dash for a deleted file
		out = append(out, trailerPermitted+": "+cmp.Or(w.Permitted[path], "-")+" "+strconv.QuoteToASCII(path))
	}
	permitted := len(out)
	for _, h := range w.Held {
		if h.Reason == schema.HeldUnauthorised {
			out = append(out, trailerUnauthorised+": "+strconv.QuoteToASCII(h.File))
		}
	}
	slices.Sort(out[permitted:])
	return append(out[:permitted], slices.Compact(out[permitted:])...)
}

// inForceBody returns the message without trailers: the held changes and their
// reasons.
func inForceBody(w reconciler.InForce) string {
	if len(w.Held) == 0 {
		return "In force: all of main"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "In force: main without %d held\n", len(w.Held))
	for i, h := range w.Held {
		if i == maxHeldLines {
			fmt.Fprintf(&b, "\n- and %d more", len(w.Held)-i)
			break
		}
		b.WriteString("\n- " + object.HeldLine(h))
	}
	return b.String()
}

// publish pushes the new objects and moves the branch, first at the remote and
// then in the mirror. The caller holds the turn.
func publish(ctx context.Context, r *object.Reader, to *remote, branch string, old, tip plumbing.Hash, set *object.Batch) error {
	pack := set.Pack()
	if err := to.push(ctx, branch, old, tip, pack); err != nil {
		return err
	}
	// The push has succeeded; an error of the mirror does not undo it.
	err := r.Mirror.AddPack(pack)
	if err == nil {
		err = r.Mirror.SetRef(plumbing.NewBranchReferenceName(branch), tip)
	}
	if err != nil {
		r.Damaged("store what was pushed", err)
	}
	return nil
}
