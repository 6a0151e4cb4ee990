/** `/jobs/bulk`: many DEAD jobs at once. Registered before `/jobs`, whose `:id/retry` would match these paths too. */
import { HttpCode, Inject, Post } from '@nestjs/common';
import { ApiOkResponse, ApiOperation } from '@nestjs/swagger';
import { AdminActor } from '../../common/http/admin_actor.js';
import { AdminApi } from '../../common/http/admin_api.decorator.js';
import { AdminBody } from '../../common/http/admin_input.js';
import { BulkAnswerDto, BulkDto } from './jobs_bulk.dto.js';
import { JobsBulkService, type BulkAnswer } from './jobs_bulk.service.js';

const EXAMPLE = { changed: 500, remaining: 1200, remaining_at_least: false, dry_run: false };

@AdminApi({ path: 'jobs/bulk', tag: 'jobs' })
export class JobsBulkController {
  constructor(@Inject(JobsBulkService) private readonly service: JobsBulkService) {}

  @Post('retry')
  @HttpCode(200)
  @ApiOperation({ summary: 'Brings DEAD jobs back, a bounded number per call; call again while some remain' })
  @ApiOkResponse({ type: BulkAnswerDto, example: EXAMPLE })
  async retry(@AdminBody(BulkDto) body: BulkDto, @AdminActor() actor: string): Promise<BulkAnswer> {
    return this.service.run('retry', body, actor);
  }

  @Post('skip')
  @HttpCode(200)
  @ApiOperation({ summary: 'Removes DEAD jobs, a bounded number per call; call again while some remain' })
  @ApiOkResponse({ type: BulkAnswerDto, example: EXAMPLE })
  async skip(@AdminBody(BulkDto) body: BulkDto, @AdminActor() actor: string): Promise<BulkAnswer> {
    return this.service.run('skip', body, actor);
  }
}
