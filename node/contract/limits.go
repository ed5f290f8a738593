// SPDX-License-Identifier: Apache-2.0

package contract

// Bounds on documents and requests. They hold when a document is parsed, when
// it is built and when a request is evaluated.
const (
	MaxColumns      = 1024 // columns of a schema or scope
	MaxConditions   = 64   // conditions of a row filter, filters of a request
	MaxValues       = 256  // values of one "in" condition
	MaxAggregates   = 16   // aggregates of a request
	MaxGroupBy      = 8    // group-by columns of a request
	MaxOrderBy      = 24   // order-by terms of a request: every group column and every aggregate
	MaxLimit        = 10_000
	MaxOffset       = 10_000_000 // rows of an answer that a page leaves out
	MaxSelect       = 64         // columns of a request for rows
	MaxFilterDepth  = 8          // levels of a request's where
	MaxRemovals     = 1200       // explained differences of an offer
	MaxName         = 128        // bytes of a column name
	MaxDataset      = 64         // bytes of a dataset id
	MaxAlias        = 64         // bytes of an aggregate's alias
	MaxPurpose      = 500        // bytes of a purpose
	MaxValue        = 1024       // bytes of a value in a condition
	MaxText         = 2000       // bytes of a description, reason or explanation
	MaxURL          = 512        // bytes of a data plane's URL
	MaxID           = 64         // bytes of a contract or receipt id
	MaxRetention    = 36_500
	MaxMinGroupSize = 1_000_000
	MaxCallBudget   = 1_000_000_000
	MaxRateSeconds  = 31_536_000    // a year
	MaxRowBudget    = 1_000_000_000 // rows of select_records over a contract's validity
	MaxMicroEpsilon = 1_000_000_000 // millionths
	maxDID          = 512
	maxProofValue   = 256
	maxKeyID        = 640
	maxDocument     = 1 << 20
)
