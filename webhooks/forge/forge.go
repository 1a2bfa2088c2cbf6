// Package forge defines a forge for the daemon: a value of type Kind. A package
// such as webhooks/github makes it, and the daemon's registry lists it in one line.
//
// The Kind owns everything that only its forge has: the fields of the section forge of
// berth.yaml, the format of deliveries, the credentials, the rate limits, and the client
// with its log of deliveries. The daemon owns the files, queues and logs around them.
//
// The package must not know a particular forge, the daemon, Git or CUE.
package forge

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/reconciler"
	"berth/webhooks"
	"berth/webhooks/secret"
)

// Kind is one kind of forge. All fields are needed. The functions are safe for
// concurrent use.
type Kind struct {
	// Name is the value of forge.kind in berth.yaml, and ends the path of the webhook.
	Name string
	// CUE defines #Forge, the section forge. It may use the definitions of the daemon's
	// config.cue; `kind!: _kinds` is one of its fields.
	CUE string
	// New returns an empty section, a pointer to a struct. The JSON names of its fields
	// are those of #Forge. A secret has the type secret.Ref or *secret.Ref.
	New func() Section
	// Webhook is how the forge signs and describes its deliveries.
	Webhook webhooks.Format
	// OpenLimiter makes a Limiter that continues from the state in a file. With an error
	// the Limiter is usable too: it starts slowly; fs.ErrNotExist means that there is no
	// file. onError is called once when writing the file fails.
	OpenLimiter func(path string, now time.Time, onError func(error)) (Limiter, error)
	// PullRefs are the refs in which it keeps pull requests.
	PullRefs reconciler.PullRefs
	// IsPage reports whether an http or https URL is a page of the forge's public server,
	// and so not of a repository.
	IsPage func(*url.URL) bool
}

// Section is the section forge of one berth.yaml. Its text is valid by Kind.CUE. Fields
// in messages have their whole path, such as forge.token. Conflicts is called first, then
// Complete once; the other methods are safe for concurrent use after that.
type Section interface {
	// Conflicts checks fields that exclude or need each other. It reads no file.
	Conflicts(Check)
	// Complete fills in the defaults, also those that depend on other fields.
	Complete()
	// Warnings returns findings that do not stop the daemon. The URL is that of the
	// estate's repository; hasToken says whether that has a token of its own.
	Warnings(repository string, hasToken bool) []string

	// FullName is the name of the repository, as Event.Repo has it.
	FullName() string
	// IsOwn reports whether the sender of a delivery proves that Berth caused it.
	IsOwn(sender string) bool
	// Identity names the credential in logs; sections of one identity share a Limiter. It
	// is unique over all kinds, so it contains the address of the API.
	Identity() string
	// WebhookSecrets are the secrets that may sign deliveries.
	WebhookSecrets() []SecretField
	// KeyFields are the paths of secrets that are keys: they have several lines.
	KeyFields() []string
	// Access returns the credentials, which are read when they are used. The error says
	// that a key is unreadable or wrong; the Access is usable once the key is right.
	Access() (Access, error)
}

// Check adds a finding if a rule is broken. at is the path of a field that exists, for
// the place in the file; field is the path that the message is about.
type Check func(wrong bool, at, field, message string)

// SecretField is a secret with the path of its field.
type SecretField struct {
	Field string
	*secret.Ref
}

// Access is Berth's way to one repository at a forge.
type Access struct {
	// Git is the credential for fetching and pushing; nil: the forge gives none.
	Git *GitToken
	// Open connects the client. It sends no request. The error says which option is wrong.
	Open func(Options) (Client, error)
}

// GitToken is a credential of a forge for Git over HTTP.
type GitToken struct {
	User   string
	Source string // describes the token in messages, such as "of the App …"
	// Read returns the token for the next request. The error gives the reason for a missing one.
	Read func(context.Context) (string, error)
	// IsFor reports whether the token may be sent to the URL of a repository.
	IsFor func(repository string) bool
}

// Options of a Client.
type Options struct {
	Estate   string  // separates several estates with one account
	Limiter  Limiter // from OpenLimiter of the same Kind; nil: a new one
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Limiter keeps the requests of one credential below the forge's limits.
type Limiter interface {
	// Save stores the exact state, before the Limiter stops or continues elsewhere.
	Save(now time.Time)
}

// Client is one repository at a forge. It is safe for concurrent use.
type Client interface {
	reconciler.Forge
	Log
	// Rerequest records that a user asked to run the checks of a commit again.
	Rerequest(commit string)
	// FilesURL returns the URL below which the forge shows files. A commit and a path
	// follow it.
	FilesURL() string
}

// Errors of a Log.
var (
	// ErrLogTooLong comes with the newest entries of a log that has more.
	ErrLogTooLong = errors.New("the log of deliveries is too long")
	// ErrUnread comes with a delivery whose body is of an unknown shape. It has one Unread
	// event.
	ErrUnread = errors.New("delivery not understood")
)

// Log is a forge's own log of the deliveries that it attempted. A forge without one
// returns no entries.
type Log interface {
	// Deliveries lists the attempts since a time, the newest of each webhook first;
	// ErrLogTooLong if it stops before.
	Deliveries(ctx context.Context, since time.Time) ([]Logged, error)
	// Delivery reads the delivery of an entry, as if it had arrived; ErrUnread if it is not
	// understood.
	Delivery(ctx context.Context, entry Logged) (webhooks.Delivery, error)
}

// Logged is one attempt at a delivery.
type Logged struct {
	ID        string // as Delivery.ID; the same for each attempt
	Event     string // such as "push"
	IsIgnored bool   // Berth reacts to no delivery of that event
	IsRerun   bool   // a user asked to run checks again
	Code      int    // the receiver's status code; 0: no answer
	When      time.Time
	Entry     any // the adapter's own name of the attempt
}
