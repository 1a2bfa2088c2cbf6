package gitrepo

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
	"berth/schema/audit"
)

// openStatus creates the Branch for berth/status of r.
func (r *Repo) openStatus() {
	r.statusBranch = statusbranch.New(r.Reader, statusbranch.Options{
		Author: r.who, Sign: r.Options.Sign, Now: r.Options.Now,
		Publish: func(ctx context.Context, old, tip plumbing.Hash, set *object.Batch) error {
			return r.publish(ctx, r.status, reconciler.BranchStatus, old, tip, set)
		},
	})
}

// ReadStatus reads a commit of berth/status; "" is an empty branch. It skips
// files that Berth cannot have written and names them in Warnings. The caller
// must not modify the statuses.
func (r *Repo) ReadStatus(ctx context.Context, commit string) (reconciler.StatusTree, error) {
	return r.statusBranch.Read(ctx, commit)
}

// WriteStatus makes one commit on berth/status and pushes it in one request. Its
// cost follows the changes in b, neither the estate nor the history. If b changes
// nothing, it returns old. So a caller may write a batch again on the new tip
// after a lost response.
//
// The error is reconciler.ErrConflict if another process moved the branch from old.
func (r *Repo) WriteStatus(ctx context.Context, old string, b reconciler.StatusBatch) (string, error) {
	release, err := r.acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", reconciler.BranchStatus, err)
	}
	defer release()
	return r.statusBranch.Write(ctx, old, b)
}

// AuditTail reads the end of the audit log; see reconciler.Repo.
func (r *Repo) AuditTail(ctx context.Context, commit string, since time.Time, least int) ([]audit.Line, error) {
	return r.statusBranch.AuditTail(ctx, commit, since, least)
}

// EventsSince reads the newest events; see reconciler.EventReader.
func (r *Repo) EventsSince(ctx context.Context, commit string, since time.Time) iter.Seq2[plan.Event, error] {
	return r.statusBranch.EventsSince(ctx, commit, since)
}

// Events reads the event log of a commit of berth/status; see
// statusbranch.Branch.Events.
func (r *Repo) Events(ctx context.Context, commit string, o statusbranch.LogOrder) iter.Seq2[statusbranch.Logged[plan.Event], error] {
	return r.statusBranch.Events(ctx, commit, o)
}

// Audit reads the audit log of a commit of berth/status; see
// statusbranch.Branch.Audit.
func (r *Repo) Audit(ctx context.Context, commit string, o statusbranch.LogOrder) iter.Seq2[statusbranch.Logged[audit.Record], error] {
	return r.statusBranch.Audit(ctx, commit, o)
}
