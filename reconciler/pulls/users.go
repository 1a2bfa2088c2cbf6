package pulls

import (
	"context"
	"errors"
	"strings"

	"berth/reconciler"
)

// errManyUsers: the permissions of so many users were asked for that the next one
// has to wait.
var errManyUsers = errors.New("too many users at a time")

// users are the authors of some comments. The forge is asked once for the permission
// of each, and of a bounded number.
type users struct {
	forge   reconciler.Forge
	most    int
	answers map[string]userAnswer // by lower-case login
}

type userAnswer struct {
	may reconciler.Permission
	err error
}

func newUsers(forge reconciler.Forge, most int) *users {
	return &users{forge: forge, most: most, answers: map[string]userAnswer{}}
}

// permission is the permission of a user in the repository.
func (u *users) permission(ctx context.Context, login string) (reconciler.Permission, error) {
	key := strings.ToLower(login)
	answer, known := u.answers[key]
	if !known && len(u.answers) >= u.most {
		return reconciler.NoPermission, errManyUsers
	}
	if !known {
		answer.may, answer.err = u.forge.Permission(ctx, login)
		u.answers[key] = answer
	}
	return answer.may, answer.err
}

// isFinal reports whether an error ends all requests for now: ctx ended, or the forge
// refuses requests until a time.
func isFinal(ctx context.Context, err error) bool {
	var later *reconciler.RetryAfterError
	return err != nil && ctx.Err() != nil || errors.As(err, &later)
}
