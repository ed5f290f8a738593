// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Settings that carry calls under way from the data plane to the node's operator, and the operator's word back.
const (
	callsKey  = "dataplane.calls"
	cancelKey = "dataplane.cancel"
)

// maxCancels bounds the calls that wait to be ended.
const maxCancels = 100

// CallUnderWay is a call of a buyer that waits for the data plane's engine or that the engine works on.
type CallUnderWay struct {
	ID         string    `json:"id"`
	Buyer      string    `json:"buyer"` // DID
	ContractID string    `json:"contractId"`
	Dataset    string    `json:"dataset"`
	Since      time.Time `json:"since"`
	Running    bool      `json:"running"` // false: it waits
}

// CallsUnderWay is what a data plane last said.
type CallsUnderWay struct {
	At    time.Time      `json:"at"`
	Calls []CallUnderWay `json:"calls"`
}

// PutCallsUnderWay keeps what is under way, for the operator.
func PutCallsUnderWay(tx Settings, c CallsUnderWay) error { return putJSON(tx, callsKey, c) }

// GetCallsUnderWay returns what the data plane last said; nothing when it never said anything.
func GetCallsUnderWay(tx Settings) (c CallsUnderWay, err error) {
	err = getJSON(tx, callsKey, &c)
	return c, err
}

// CancelCall asks the data plane to end a call. ErrNotFound when no such call was said to be under way.
func CancelCall(tx Settings, id string) error {
	c, err := GetCallsUnderWay(tx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(c.Calls, func(u CallUnderWay) bool { return u.ID == id }) {
		return fmt.Errorf("%w: no such call is under way", ErrNotFound)
	}
	var ids []string
	if err := getJSON(tx, cancelKey, &ids); err != nil {
		return err
	}
	if slices.Contains(ids, id) {
		return nil
	}
	if len(ids) >= maxCancels {
		ids = ids[1:]
	}
	return putJSON(tx, cancelKey, append(ids, id))
}

// CancelledCalls returns the calls that are to be ended.
func CancelledCalls(tx Settings) (ids []string, err error) {
	err = getJSON(tx, cancelKey, &ids)
	return ids, err
}

// ForgetCancelledCalls empties the list of [CancelledCalls].
func ForgetCancelledCalls(tx Settings) error { return putJSON(tx, cancelKey, []string{}) }

func putJSON(tx Settings, key string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.PutSetting(key, string(data))
}

func getJSON(tx Settings, key string, v any) error {
	data, err := tx.GetSetting(key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(data), v); err != nil {
		return fmt.Errorf("%w: setting %s", ErrCorrupt, key)
	}
	return nil
}
