package github

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	gh "github.com/google/go-github/v62/github"

	"berth/reconciler"
)

// LimitError says that the forge, or our own pace below its limits, lets
// nothing through until Until. Nothing was written. Test with errors.As.
type LimitError struct {
	Until time.Time
	Why   string // "primary", "secondary", "pace"
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s rate limit: nothing more before %s", e.Why, e.Until.UTC().Format(time.RFC3339))
}

// Unwrap tells the loop how long to wait, in its own words.
func (e *LimitError) Unwrap() error { return &reconciler.RetryAfterError{At: e.Until} }

// sentError is that a request went out, and no whole answer came.
type sentError struct{ error }

func (e *sentError) Unwrap() error { return e.error }

// uncertain says whether err leaves open if a write was carried out.
func uncertain(err error) bool {
	var answer *gh.ErrorResponse
	if errors.As(err, &answer) {
		return answer.Response != nil && answer.Response.StatusCode >= 500
	}
	var sent *sentError
	return errors.As(err, &sent)
}

// notFound says whether the forge answered that there is no such thing.
func notFound(err error) bool {
	var answer *gh.ErrorResponse
	return errors.As(err, &answer) && answer.Response != nil &&
		(answer.Response.StatusCode == http.StatusNotFound || answer.Response.StatusCode == http.StatusGone)
}

// explain adds what to do about an answer that only people can do something about.
func explain(err error) error {
	var answer *gh.ErrorResponse
	if !errors.As(err, &answer) || answer.Response == nil {
		return err
	}
	switch answer.Response.StatusCode {
	case http.StatusUnauthorized:
		return fmt.Errorf("%w (the token is wrong or has expired)", err)
	case http.StatusForbidden:
		return fmt.Errorf("%w (the token may not do this: grant it pull requests write, and checks write or commit statuses write)", err)
	case http.StatusNotFound:
		return fmt.Errorf("%w (it is not there, or the token may not see it)", err)
	}
	return err
}

// missing is explain for a pull request or its comments: that it is not there is
// reconciler.ErrNotFound, so that it is not asked for for ever.
func missing(err error) error {
	if notFound(err) {
		return fmt.Errorf("%w: %w", reconciler.ErrNotFound, explain(err))
	}
	return explain(err)
}
