package decide

import (
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/signature"
)

// subject is the author of a change, and the users whose commands count for it.
type subject struct {
	authority.Actor
	signer      *signature.Signer // of the commit, if Actor proves nobody; nil: unknown
	commit      string
	pullRequest int
	acks        []string   // digests of deletions
	applies     *applicant // user whose command authorizes the change; nil: no command
}

// in is the actor where a permission is needed: a signing key counts only in the
// scope that names it.
func (s subject) in(scope authority.Scope) authority.Actor {
	if s.signer == nil || s.Proof != authority.ProofNone {
		return s.Actor
	}
	a, err := s.signer.Actor(scope)
	if err != nil {
		return s.Actor
	}
	a.BreakGlass = s.BreakGlass
	return a
}

// Apply is the command of a user to bring into force the changes of one commit of main
// that are held as unauthorized or as a blocked deletion. It replaces the missing
// permission, and the acknowledgement of a deletion in a valid tenant tree. Other
// reasons still hold a document.
type Apply struct {
	By         string              // login
	BreakGlass string              // the reason for break-glass access; "": none is asked for
	Commit     string              // of main
	Touched    []schema.PathChange // changes of Commit, sorted by path

	// Author is the login of the author of the change; "": unknown, as for a push
	// without a signature. Where a policy wants two persons, they are the author and
	// the user who gives the command.
	Author      string
	PullRequest int // that Commit merged; 0: none
	// Payload and Signature are those of Commit, if Author is unknown.
	Payload, Signature []byte
}

// applicant is the user whose command authorizes a change.
type applicant struct {
	Apply
	signer   *signature.Signer // of Commit; nil: unknown
	seconded bool              // the change had its permission: no second person is needed
}

// Ack acknowledges, other than by a commit, a blocked deletion. It counts by the
// permissions of its author.
type Ack struct {
	By     authority.Actor
	Digest string // of exactly the blocked documents, as they are in force
}

func (a Ack) subject(commit string, pullRequest int) subject {
	return subject{Actor: a.By, commit: commit, pullRequest: pullRequest, acks: []string{a.Digest}}
}
