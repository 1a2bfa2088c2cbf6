package gitrepo

import (
	"context"
	"log/slog"
	"time"

	"berth/reconciler"
)

// Options configure the repository of an estate and Berth's commits.
type Options struct {
	URL    string // https, ssh, or http to this machine; without credentials
	Dir    string // directory of the mirror; used by one process at a time
	Branch string // the branch that people merge to; empty: main

	// Status is a separate repository for berth/status, for an estate whose status must not be visible to readers of the
	// estate. Zero: the estate's repository.
	Status StatusRepository

	Auth       AuthFunc // for URL; nil: no credentials
	KnownHosts string   // file that pins SSH host keys; needed for ssh URLs
	AllowHTTP  bool     // plain http to other machines; only for closed networks

	// Sign signs the raw bytes of commits on berth/status and berth/in-force. Nil:
	// unsigned. Commits on berth/main are unsigned, because every daemon must
	// compose identical ones.
	Sign func(raw []byte) ([]byte, error)

	// Timeout bounds one call to the remote. A first fetch has ten times as long.
	// Zero: one minute.
	Timeout time.Duration

	// MaxPull bounds the pack size in bytes of one pull request head. Zero: 256
	// MiB.
	MaxPull int64

	// PullRefs are those of the forge; zero: there are no pull requests.
	PullRefs reconciler.PullRefs

	// Tenant marks a tenant's repository: only Branch is read, its history may be
	// rewritten, and MaxPull bounds one fetch.
	Tenant bool
	// Composer composes the estate from Branch and the tenants' repositories. Nil:
	// the estate is Branch.
	Composer Composer

	Log *slog.Logger     // nil: no log
	Now func() time.Time // time of commits; nil: time.Now
}

// StatusRepository is a repository for berth/status alone.
type StatusRepository struct {
	URL  string   // as Options.URL
	Auth AuthFunc // Options.Auth is not sent there
}

// defaultMaxPull is the default of Options.MaxPull; an estate is text.
const defaultMaxPull = 256 << 20

// turn holds one token. Its holder may talk to the remote and move local refs.
type turn chan struct{}

// acquire waits for the token.
func (t turn) acquire(ctx context.Context) (release func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
