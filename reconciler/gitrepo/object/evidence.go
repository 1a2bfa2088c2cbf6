package object

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/schema/signature"
)

// maxEvidence bounds the size in bytes of a commit read for evidence, its message
// included. A larger commit gets a Fault instead.
const maxEvidence = 1 << 20

// Evidence returns the author, trailers and signature in the bytes of a commit
// (requirement A9). It reads only the mirror, which holds the history of the
// fetched branches. A forge also serves commits of any fork by their id; those
// prove nothing.
func (r *Reader) Evidence(_ context.Context, id string) (reconciler.Evidence, error) {
	h, err := ParseID(id)
	if err != nil {
		return reconciler.Evidence{}, err
	}
	r.Swap.RLock()
	kind, raw, more, err := r.Mirror.Read(h, maxEvidence)
	r.Swap.RUnlock()
	e, err := r.evidence(h, kind, raw, more, err)
	if err != nil {
		return e, fmt.Errorf("evidence of commit %s: %w", h, err)
	}
	return e, nil
}

// HeadEvidence is Evidence for a pull request head that FetchPull fetched.
func (r *Reader) HeadEvidence(_ context.Context, head string) (reconciler.Evidence, error) {
	h, err := ParseID(head)
	if err != nil {
		return reconciler.Evidence{}, err
	}
	kind, raw, more, err := r.Read(h, maxEvidence)
	e, err := r.evidence(h, kind, raw, more, err)
	if err != nil {
		return e, fmt.Errorf("evidence of head %s: %w", h, err)
	}
	return e, nil
}

func (r *Reader) evidence(h plumbing.Hash, kind plumbing.ObjectType, raw []byte, more bool, err error) (reconciler.Evidence, error) {
	e := reconciler.Evidence{Commit: h.String()}
	switch {
	case errors.Is(err, errAbsent):
		return e, fmt.Errorf("%w among the commits of the branches", reconciler.ErrNotFound)
	case err != nil:
		r.Damaged("read evidence", err)
		return e, err
	case kind != plumbing.CommitObject:
		return e, fmt.Errorf("%w: it is a %s", reconciler.ErrNotFound, kind)
	case more:
		e.Fault = fmt.Sprintf("the commit is larger than %d bytes", maxEvidence)
		return e, nil
	}
	c, err := parseCommit(h, raw)
	if err != nil {
		return e, err
	}
	p := c.Public()
	e.Author, e.AuthorEmail, e.Subject, e.Parents = p.Author, p.Email, p.Subject, p.Parents
	e.Committer, e.CommitterEmail = c.committer, c.committerEmail
	if c.When != 0 {
		e.When = time.Unix(c.When, 0).UTC()
	}
	e.Trailers = messageTrailers(c.Message)
	if e.Payload, e.Signature, err = signature.Split(raw); err != nil {
		e.Fault = err.Error()
	}
	if e.Signature == nil {
		e.Payload = nil
	}
	return e, nil
}
