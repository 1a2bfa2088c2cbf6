package decide

import (
	"context"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// Repo is the part of a repository that a proposal needs.
type Repo interface {
	Snapshot(ctx context.Context, commit string) (schema.Snapshot, error)
	Diff(ctx context.Context, from, to string) ([]schema.PathChange, error)
	Merge(ctx context.Context, base, head string) (tree string, conflicts []string, err error)
}

// Input is a proposed change.
type Input struct {
	Repo        Repo
	Base        string            // commit of main that the change is merged into
	InForce     string            // commit of berth/in-force; "": what of Base would come into force
	Permitted   map[string]string // of InForce, as in Standing
	Head        string            // commit; "" for Change without one
	By          *authority.Actor  // author; nil: no permission is asked for
	Acks        []string          // digests of deletions that the head acknowledges
	CommentAcks []Ack             // acknowledgements by comments
	Acked       bool              // deletions of the change are acknowledged elsewhere
	Today       string            // UTC day, such as 2026-01-31
	Memory      *plan.Memory
	GPUSeconds  map[string]int64                // as in Facts
	Rules       func(backend string) plan.Rules // nil: impacts are not known
	// Seen returns findings about the change that depend on observations. They hold no
	// change. nil: no such findings.
	Seen func(before, after *schema.Desired) []schema.Diagnostic
}

// proposal returns an empty proposal.
func (in *Input) proposal() plan.ProposeInput {
	return plan.ProposeInput{Base: in.Base, Head: in.Head, Memory: in.Memory, Rules: in.Rules, Diagnostics: []schema.Diagnostic{},
		Documents: []plan.DocumentChange{}}
}

// facts returns the facts of the input.
func (in *Input) facts() Facts { return Facts{Memory: in.Memory, GPUSeconds: in.GPUSeconds} }
