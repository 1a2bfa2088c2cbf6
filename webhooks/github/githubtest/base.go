package githubtest

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// base is the common state of the parts of a Server. Its mutex guards the state of all parts:
// users of the API see one state of the repository.
type base struct {
	o       Options
	url     string // without a slash at the end
	desc    *description
	webhook *courier

	mu         sync.Mutex
	lastID     int64
	violations []string
}

// lock locks the state of all parts and returns the unlock function. Unexported methods
// expect the lock.
func (b *base) lock() (unlock func()) {
	b.mu.Lock()
	return b.mu.Unlock
}

// Violations lists the mismatches with GitHub: requests that GitHub would refuse or
// misread, and answers that GitHub would not give.
func (b *base) Violations() []string {
	defer b.lock()()
	return slices.Clone(b.violations)
}

// ForgetViolations empties the list, for a test that causes violations on purpose.
func (b *base) ForgetViolations() {
	defer b.lock()()
	b.violations = nil
}

func (b *base) violation(format string, args ...any) {
	b.violations = append(b.violations, fmt.Sprintf(format, args...))
}

// id returns the next id; all kinds share one sequence.
func (b *base) id() int64 {
	b.lastID++
	return b.lastID
}

func (b *base) now() time.Time { return b.o.Now().UTC().Truncate(time.Second) }

// api is a URL of the repository in the API; html is one of its web pages, which the
// server does not have.
func (b *base) api(parts ...any) string {
	return b.url + "/repos/" + b.o.Owner + "/" + b.o.Repo + fmt.Sprint(parts...)
}

func (b *base) html(parts ...any) string {
	return b.url + "/" + b.o.Owner + "/" + b.o.Repo + fmt.Sprint(parts...)
}

// obj is a JSON object. Shapes have the fields that matter; the description adds the
// other required ones.
type obj map[string]any

func nodeID(kind string, id int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + ":" + strconv.FormatInt(id, 10)))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// orNull is v, or null for the zero value; a time becomes a timestamp.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	if t, ok := any(v).(time.Time); ok {
		return stamp(t)
	}
	return v
}

// shaped lists the shapes of items that pass a filter; nil: all.
func shaped[T any](items []T, shape func(T) obj, filter func(T) bool) []any {
	out := []any{}
	for _, item := range items {
		if filter == nil || filter(item) {
			out = append(out, shape(item))
		}
	}
	return out
}

// find returns the first item that matches, or nil.
func find[T any](items []*T, matches func(*T) bool) *T {
	if i := slices.IndexFunc(items, matches); i >= 0 {
		return items[i]
	}
	return nil
}

// findLast returns the last item that matches, or nil.
func findLast[T any](items []*T, matches func(*T) bool) *T {
	for _, item := range slices.Backward(items) {
		if matches(item) {
			return item
		}
	}
	return nil
}

func isBot(login string) bool { return strings.HasSuffix(login, "[bot]") }
