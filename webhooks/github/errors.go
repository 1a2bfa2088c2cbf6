package github

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	gh "github.com/google/go-github/v62/github"

	"berth/reconciler"
)

// LimitError says that a limit of the forge, or Berth's own rate limit below it, delays
// requests until Until. Nothing was written. Test with errors.As.
type LimitError struct {
	Until time.Time
	Why   string // "primary", "secondary", "pace"
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s rate limit: no request before %s", e.Why, e.Until.UTC().Format(time.RFC3339))
}

// Unwrap gives the loop the time to retry.
func (e *LimitError) Unwrap() error { return &reconciler.RetryAfterError{At: e.Until} }

// sentError means that a request was sent and no complete answer arrived.
type sentError struct{ error }

func (e *sentError) Unwrap() error { return e.error }

// uncertain says whether a write may have been carried out in spite of err.
func uncertain(err error) bool {
	var answer *gh.ErrorResponse
	if errors.As(err, &answer) {
		return answer.Response != nil && answer.Response.StatusCode >= 500
	}
	var sent *sentError
	return errors.As(err, &sent)
}

// notFound says whether the forge answered 404 or 410.
func notFound(err error) bool {
	var answer *gh.ErrorResponse
	return errors.As(err, &answer) && answer.Response != nil &&
		(answer.Response.StatusCode == http.StatusNotFound || answer.Response.StatusCode == http.StatusGone)
}

// explain adds the next step to an answer that only a person can fix.
func explain(err error) error {
	var answer *gh.ErrorResponse
	if !errors.As(err, &answer) || answer.Response == nil {
		return err
	}
	switch answer.Response.StatusCode {
	case http.StatusUnauthorized:
		return fmt.Errorf("%w (the token is invalid or expired)", err)
	case http.StatusForbidden:
		return fmt.Errorf("%w (the token may not do this: grant it pull requests write, and checks write or commit statuses write)", err)
	case http.StatusNotFound:
		return fmt.Errorf("%w (it does not exist, or the token may not read it)", err)
	}
	return err
}

// missing is explain for a pull request or its comments: a missing one is
// reconciler.ErrNotFound, so that Berth does not retry for ever.
func missing(err error) error {
	if notFound(err) {
		return fmt.Errorf("%w: %w", reconciler.ErrNotFound, explain(err))
	}
	return explain(err)
}
