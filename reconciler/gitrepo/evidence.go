package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/schema/signature"
)

// maxEvidence bounds the commit that is read for evidence, its message
// included. One that is larger is there, but nothing it says is looked at.
const maxEvidence = 1 << 20

// Evidence is what the bytes of a commit say of who made it (requirement A9).
// It is asked of the mirror alone: a forge hands out whatever was pushed to any
// fork by its id, and only what the branches that Fetch brings in are made of
// speaks for itself.
func (r *Repo) Evidence(_ context.Context, id string) (reconciler.Evidence, error) {
	h, err := parseID(id)
	if err != nil {
		return reconciler.Evidence{}, err
	}
	r.swap.RLock()
	kind, raw, more, err := r.mirror.read(h, maxEvidence)
	r.swap.RUnlock()
	e, err := r.evidence(h, kind, raw, more, err)
	if err != nil {
		return e, fmt.Errorf("evidence of commit %s: %w", h, err)
	}
	return e, nil
}

// PullEvidence is what the head of a pull request says of who made it, and of
// what they ask. It proves nothing of main: only that this head says so.
func (r *Repo) PullEvidence(ctx context.Context, number int) (reconciler.Evidence, error) {
	head, err := r.FetchPull(ctx, number)
	if err != nil {
		return reconciler.Evidence{}, err
	}
	e, err := r.HeadEvidence(ctx, head)
	if err != nil {
		return e, fmt.Errorf("pull request %d: %w", number, err)
	}
	return e, nil
}

// HeadEvidence is PullEvidence of a head that FetchPull brought.
func (r *Repo) HeadEvidence(_ context.Context, head string) (reconciler.Evidence, error) {
	h, err := parseID(head)
	if err != nil {
		return reconciler.Evidence{}, err
	}
	kind, raw, more, err := r.read(h, maxEvidence)
	e, err := r.evidence(h, kind, raw, more, err)
	if err != nil {
		return e, fmt.Errorf("evidence of head %s: %w", h, err)
	}
	return e, nil
}

func (r *Repo) evidence(h plumbing.Hash, kind plumbing.ObjectType, raw []byte, more bool, err error) (reconciler.Evidence, error) {
	e := reconciler.Evidence{Commit: h.String()}
	switch {
	case errors.Is(err, errAbsent):
		return e, fmt.Errorf("%w among the commits of the branches", reconciler.ErrNotFound)
	case err != nil:
		r.damaged("read evidence", err)
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
	p := c.public()
	e.Author, e.AuthorEmail, e.Subject, e.Parents = p.Author, p.Email, p.Subject, p.Parents
	e.Committer, e.CommitterEmail = c.committer, c.committerEmail
	if c.when != 0 {
		e.When = time.Unix(c.when, 0).UTC()
	}
	e.Trailers = messageTrailers(c.message)
	if e.Payload, e.Signature, err = signature.Split(raw); err != nil {
		e.Fault = err.Error()
	}
	if e.Signature == nil {
		e.Payload = nil
	}
	return e, nil
}
