/** `/targets`: how the targets are, and pausing them by hand. A name with a colon or a slash comes percent-encoded. */
import { Get, HttpCode, Inject, Post } from '@nestjs/common';
import { ApiOkResponse, ApiOperation } from '@nestjs/swagger';
import { AdminActor } from '../../common/http/admin_actor.js';
import { AdminApi, ApiLost, ApiUnknown } from '../../common/http/admin_api.decorator.js';
import { AdminBody, AdminParam } from '../../common/http/admin_input.js';
import { RequiredReasonDto } from '../../common/http/admin_reason.dto.js';
import { TARGET_EXAMPLE, TargetDto } from './overview.dto.js';
import { TargetStates, type TargetState } from './target_states.service.js';

const NO_SUCH_TARGET = 'No target has this name';
const Name = (): ParameterDecorator => AdminParam('name', { example: TARGET_EXAMPLE.name });

@AdminApi({ path: 'targets', tag: 'targets' })
export class TargetsController {
  constructor(@Inject(TargetStates) private readonly targets: TargetStates) {}

  @Get()
  @ApiOperation({ summary: 'Lists targets: state, reason and counts' })
  @ApiOkResponse({ type: TargetDto, isArray: true, example: [TARGET_EXAMPLE] })
  async list(): Promise<TargetState[]> {
    return this.targets.list();
  }

  @Post(':name/pause')
  @HttpCode(200)
  @ApiOperation({ summary: 'Lets a target rest until it is resumed; its jobs wait and spend no attempts' })
  @ApiOkResponse({ type: TargetDto, example: TARGET_EXAMPLE })
  @ApiUnknown(NO_SUCH_TARGET)
  @ApiLost('An admin has paused it already')
  async pause(
    @Name() target: string,
    @AdminBody(RequiredReasonDto) { reason }: RequiredReasonDto,
    @AdminActor() actor: string,
  ): Promise<TargetState> {
    return this.targets.pause({ target, actor, reason });
  }

  @Post(':name/resume')
  @HttpCode(200)
  @ApiOperation({ summary: 'Opens a target, whoever paused it' })
  @ApiOkResponse({ type: TargetDto, example: { ...TARGET_EXAMPLE, state: 'open', reason: 'maintenance is over' } })
  @ApiUnknown(NO_SUCH_TARGET)
  @ApiLost('It is open already')
  async resume(
    @Name() target: string,
    @AdminBody(RequiredReasonDto) { reason }: RequiredReasonDto,
    @AdminActor() actor: string,
  ): Promise<TargetState> {
    return this.targets.resume({ target, actor, reason });
  }
}
