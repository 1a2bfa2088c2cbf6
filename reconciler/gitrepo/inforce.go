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

// Trailers of commits on berth/in-force (DESIGN §3).
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
func (r *Repo) WriteInForce(ctx context.Context, old string, w reconciler.InForce) (string, error) {
	tip, err := r.writeInForce(ctx, old, w)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", reconciler.BranchInForce, err)
	}
	return tip, nil
}

func (r *Repo) writeInForce(ctx context.Context, old string, w reconciler.InForce) (string, error) {
	if r.local != "" {
		return "", errReadOnly
	}
	release, err := r.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	before, err := object.ParseOptionalID(old)
	if err != nil {
		return "", err
	}
	id, err := object.ParseID(w.Commit)
	if err != nil {
		return "", err
	}
	main, err := r.Commit(id)
	if err != nil {
		return "", err
	}
	var over object.Overlay
	for path, blob := range w.Replace {
		if blob == "" {
			over.Remove(path)
			continue
		}
		h, err := object.ParseID(blob)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		kind, _, _, err := r.Read(h, 0)
		switch {
		case err != nil:
			r.Damaged("read what was in force", err)
			return "", fmt.Errorf("%s: the version in force: %w", path, err)
		case kind == plumbing.BlobObject:
			over.File(path, h)
		case kind == plumbing.TreeObject:
			over.Directory(path, h)
		default:
			return "", fmt.Errorf("%s: the version in force: %s is a %s", path, h, kind)
		}
	}
	var set object.Batch
	tree, err := r.ApplyOverlay(main.Tree, &over, &set)
	if err != nil {
		return "", err
	}
	if tree.IsZero() {
		tree = set.Add(plumbing.TreeObject, nil)
	}
	body, parents := inForceBody(w), []plumbing.Hash{id}
	unauthorised, permitted := unauthorisedFiles(w.Held), permittedFiles(w.Permitted)
	if !before.IsZero() {
		last, err := r.Commit(before)
		if err != nil {
			return "", err
		}
		if last.Tree == tree && last.Body() == body && slices.Equal(last.Trailers(trailerUnauthorised), unauthorised) && slices.Equal(last.Trailers(trailerPermitted), permitted) {
			return old, nil
		}
		parents = []plumbing.Hash{before, id}
	}
	var correlation []string
	if w.CorrelationID != "" {
		correlation = []string{w.CorrelationID}
	}
	var message strings.Builder
	message.WriteString(body + "\n\n")
	for _, file := range permitted {
		message.WriteString(trailerPermitted + ": " + file + "\n")
	}
	for _, file := range unauthorised {
		message.WriteString(trailerUnauthorised + ": " + file + "\n")
	}
	message.WriteString(object.Trailers(w.Commit, correlation, w.Epoch))
	raw, err := r.Options.Sign(object.EncodeCommit(tree, parents, r.who, r.Options.Now(), message.String()))
	if err != nil {
		return "", err
	}
	tip := set.Add(plumbing.CommitObject, raw)
	r.moves.try(tip)
	if err := r.publish(ctx, r.main, reconciler.BranchInForce, before, tip, &set); err != nil {
		return "", err
	}
	r.verified = tip
	r.moves.pushed(tip)
	return tip.String(), nil
}

// permittedFiles returns the values of the Permitted trailers: main's blob, or a
// dash for a deleted file, and the path.
func permittedFiles(permitted map[string]string) []string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(permitted)) {
		out = append(out, cmp.Or(permitted[path], "-")+" "+strconv.QuoteToASCII(path))
	}
	return out
}

// unauthorisedFiles returns the values of the Unauthorised trailers. The commit must
// record them: unlike other reasons, a missing permission cannot be derived from
// main's tree later. All files
// are listed, however many there are.
func unauthorisedFiles(held []schema.Held) []string {
	var out []string
	for _, h := range held {
		if h.Reason == schema.HeldUnauthorised {
			out = append(out, strconv.QuoteToASCII(h.File))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ReadInForce parses a commit of berth/in-force.
func (r *Repo) ReadInForce(_ context.Context, commit string) (reconciler.InForce, error) {
	w, err := r.inForceOf(commit)
	if err != nil {
		return reconciler.InForce{}, fmt.Errorf("read back %s at %s: %w", reconciler.BranchInForce, commit, err)
	}
	return w, nil
}

func (r *Repo) inForceOf(id string) (w reconciler.InForce, err error) {
	h, err := object.ParseID(id)
	if err != nil {
		return w, err
	}
	c, err := r.Commit(h)
	if err != nil {
		return w, err
	}
	// The last parent is main's commit and must match the trailer.
	w.Commit, w.CorrelationID = c.Trailer(object.TrailerConfig), c.Trailer(object.TrailerCorrelation)
	if len(c.Parents) == 0 || c.Parents[len(c.Parents)-1].String() != w.Commit {
		return w, fmt.Errorf("%w: it says %q of what it was made of, and was not", reconciler.ErrRewritten, object.OneLine(w.Commit, object.MaxLine))
	}
	if w.Epoch, err = strconv.ParseUint(c.Trailer(object.TrailerEpoch), 10, 64); err != nil {
		return w, fmt.Errorf("%w: its epoch is no number", reconciler.ErrRewritten)
	}
	for _, line := range c.Trailers(trailerPermitted) {
		blob, quoted, _ := strings.Cut(line, " ")
		path, err := strconv.Unquote(quoted)
		if _, bad := object.ParseID(blob); err != nil || blob != "-" && bad != nil {
			return w, fmt.Errorf("%w: what it holds as permitted cannot be read: %s", reconciler.ErrRewritten, object.OneLine(line, object.MaxLine))
		}
		if w.Permitted == nil {
			w.Permitted = map[string]string{}
		}
		w.Permitted[path] = strings.TrimPrefix(blob, "-")
	}
	for _, quoted := range c.Trailers(trailerUnauthorised) {
		file, err := strconv.Unquote(quoted)
		if err != nil {
			return w, fmt.Errorf("%w: what it holds as unauthorised cannot be read: %s", reconciler.ErrRewritten, object.OneLine(quoted, object.MaxLine))
		}
		w.Held = append(w.Held, schema.Held{File: file, Reason: schema.HeldUnauthorised})
	}
	return w, nil
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
// then in the mirror. The caller holds the right to talk to the remote.
func (r *Repo) publish(ctx context.Context, to *remote, branch string, old, tip plumbing.Hash, set *object.Batch) error {
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

// PushMain pushes a pack to the estate's repository and moves a branch there.
func (r *Repo) PushMain(ctx context.Context, branch string, old, tip plumbing.Hash, pack []byte) error {
	return r.main.push(ctx, branch, old, tip, pack)
}
